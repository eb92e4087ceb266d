"""Work out what a million devices in two nights need, from what other benchmarks measured.

Every device takes part once, in rounds of whoever came, one round after another. A round lasts
until its devices have trained, as long as the one core that talks to them needs for models and
updates, and as long as all cores need to close. While one cohort works, the next one comes and
waits. To count the talking beside the work, not in it, is on the safe side.
Figures (``--json`` prints them as one object):

    uploads_a_second    Updates that must arrive on average.
    mbit_a_second       Of models out and of updates in, each.
    tib_in_all          The same over both nights, each.
    cohort, rounds      Devices of one round, and how many rounds both nights have room for.
    round_s             From one round to the next.
    close_s             Of it, the close.
    connections         At one moment: a cohort that works, and one that waits.
    connections_mb      Memory for them, in MiB.
    cores               Mean use of the cores, of those that there are.
    talking_core        Mean use of the one that talks to devices.
    disk_gib            Sealed updates of one round.
    most_devices        Devices that the same coordinator could serve so, by its connections.
    all_connected_gb    Memory for connections if every device stayed connected.
    all_coordinators    Coordinators whose connections these would be.
    draw_checkins_a_second
                        Check-ins if every device had to ask, once in each of these rounds, whether
                        a secret coin drew it; and in rounds of an hour:
    hourly_draw_checkins_a_second
    draw_cores          Cores that these check-ins alone would take, and those of rounds of an hour:
    hourly_draw_cores
"""

from dataclasses import dataclass

from benchmarks.parts.figures import benchmark_parser, show_figures

_MIB, _GIB, _TIB = 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True)
class Measured:
    """What one coordinator takes for a device with an update of 1 MiB, as benchmarks.crowd printed.

    Attributes:
        checkin_core_ms: ``core_ms_a_checkin``: handshake, certificate, lease.
        update_core_ms: ``core_ms_an_update``: the model out, the update in, durably.
        close_core_ms: ``core_ms_a_close``: its share of the close.
        connection_kib: ``kib_a_connection``: memory of a device that holds a lease.
        most_connections: Connections of one process, a limit of ours.
    """

    checkin_core_ms: float = 2.7
    update_core_ms: float = 13.9
    close_core_ms: float = 2.7
    connection_kib: float = 123.0
    most_connections: int = 10_240


@dataclass(frozen=True)
class Wanted:
    """What is asked of it.

    Attributes:
        devices: Each takes part once.
        window_s: Two nights of six hours, which is how long a nightly device stays.
        work_s: From a lease until the last update of its round is on its way.
        cores: Cores of the coordinator.
        update_bytes: Bytes of a model, and of an update; the measured ones were of as many.
    """

    devices: int = 1_000_000
    window_s: float = 2 * 6 * 3600.0
    work_s: float = 120.0
    cores: int = 2
    update_bytes: int = _MIB


def needs(measured: Measured, wanted: Wanted) -> dict[str, float]:
    """Return the figures of the module's docstring."""
    in_hand_ms = measured.checkin_core_ms + measured.update_core_ms + measured.close_core_ms
    each_s = (measured.update_core_ms + measured.close_core_ms / wanted.cores) / 1e3
    # rounds x round_s = window_s, round_s = work_s + cohort x each_s and rounds x cohort = devices.
    left_s = wanted.window_s - wanted.devices * each_s
    if left_s <= 0:
        raise ValueError(
            f"window_s must be > {wanted.devices * each_s:g}, which the updates alone take, "
            f"got {wanted.window_s:g}"
        )
    cohort = wanted.devices * wanted.work_s / left_s
    round_s = wanted.work_s + cohort * each_s
    rate = wanted.devices / wanted.window_s
    most_cohort = measured.most_connections / 2
    checkin_s = measured.checkin_core_ms / 1e3
    return {
        "uploads_a_second": rate,
        "mbit_a_second": rate * wanted.update_bytes * 8 / 1e6,
        "tib_in_all": wanted.devices * wanted.update_bytes / _TIB,
        "cohort": round(cohort),
        "rounds": round(wanted.window_s / round_s),
        "round_s": round_s,
        "close_s": cohort * measured.close_core_ms / 1e3 / wanted.cores,
        "connections": round(2 * cohort),
        "connections_mb": 2 * cohort * measured.connection_kib / 1024,
        "cores": rate * in_hand_ms / 1e3,
        "talking_core": rate * (measured.checkin_core_ms + measured.update_core_ms) / 1e3,
        "disk_gib": cohort * wanted.update_bytes / _GIB,
        "most_devices": round(
            wanted.window_s * most_cohort / (wanted.work_s + most_cohort * each_s)
        ),
        "all_connected_gb": wanted.devices * measured.connection_kib * 1024 / 1e9,
        "all_coordinators": round(wanted.devices / measured.most_connections),
        "draw_checkins_a_second": wanted.devices / round_s,
        "hourly_draw_checkins_a_second": wanted.devices / 3600,
        "draw_cores": wanted.devices / round_s * checkin_s,
        "hourly_draw_cores": wanted.devices / 3600 * checkin_s,
    }


def main() -> None:
    """Work out and print."""
    parser = benchmark_parser(__doc__, quick="the same: it is arithmetic")
    arguments = parser.parse_args()
    show_figures(needs(Measured(), Wanted()), "A million devices", as_json=arguments.json)


if __name__ == "__main__":
    main()
