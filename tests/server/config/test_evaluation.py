from server.config.evaluation import EvaluationSettings


def test_evaluation_comes_every_so_many_rounds() -> None:
    public = EvaluationSettings(kind="public", public_text="a.txt", every_rounds=3)

    assert [number for number in range(1, 10) if public.is_due(number)] == [3, 6, 9]
    assert not EvaluationSettings().is_due(3)


def test_an_evaluation_by_devices_runs_as_one_round_without_retries() -> None:
    devices = EvaluationSettings(kind="devices", cohort_size=4, quorum=2, deadline_s=30.0)

    exchange = devices.exchange()

    assert (exchange.cap, exchange.retry_limit) == (1, 0)
    assert (exchange.cohort_size, exchange.quorum, exchange.deadline_s) == (4, 2, 30.0)
