"""Measure what strangers and slow people cost a coordinator, a model server and those they serve.

Figures (``--json`` prints them as one object):

    coordinator_rss_growth_mb  Resident memory of the coordinator afterwards, over that before;
                               ``..._peak_...``: at its most, looked at after each wave.
    descriptors_left           Descriptors of it above those before, 60 s after the last wave came.
                               No stranger hangs up: whatever is closed, the coordinator closed.
    round_ratio                Time of an honest device from lease to acknowledgement meanwhile,
                               over its usual time.
    serve_rss_growth_mb, serve_descriptors_left, suggestion_ratio
                               The same of the model server and an honest person's suggestion.
    turned_away                Strangers of the coordinator who were not even let in.
    errors                     What went wrong for the honest device and person: 0.

The coordinator's waves, each from a process of its own, at enrolment and at the devices' door: 200
messages that stop half-way (without a certificate, handshakes that do), 100 readers who do not
read, 60 uploads of one lease each replaced by the next, and 1,000 connections that say nothing.
``--quick`` sends them once, else three times. The C library keeps what was freed, so growth is what
the worst moment needed beyond what rounds had used before; it does not grow with each siege.
"""

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.strangers_at_the_coordinator import measure_coordinator
from benchmarks.parts.strangers_serving import measure_serving


def measure(*, quick: bool) -> dict[str, float]:
    """Besiege both servers, one after the other."""
    figures = {**measure_coordinator(quick=quick), **measure_serving(quick=quick)}
    errors = figures.pop("coordinator_errors") + figures.pop("serve_errors")
    return {**figures, "errors": errors}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="each wave once")
    arguments = parser.parse_args()
    figures = measure(quick=arguments.quick)
    show_figures(figures, "Strangers at the doors", as_json=arguments.json)


if __name__ == "__main__":
    main()
