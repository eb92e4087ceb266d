"""The frame of a page: what is put into it is text, unless this package made it markup."""

from models.pages.document import document, element, facts, table

HOSTILE = "<script>alert(1)</script>\" onload='x' &amp;"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#x27;x&#x27; &amp;amp;"


def test_text_is_escaped_wherever_it_is_put_and_once() -> None:
    contents = [
        element("p", HOSTILE),
        element("p", element("code", HOSTILE)),
        table([HOSTILE], [[HOSTILE]]),
        facts([(HOSTILE, HOSTILE)]),
    ]

    page = document(HOSTILE, contents)

    assert "<script" not in page
    # Title and heading, two paragraphs, head and cell, name and fact.
    assert page.count(ESCAPED) == 8


def test_a_page_forbids_scripts_and_loading() -> None:
    assert "default-src 'none'" in document("a page", [])


def test_words_stand_left_figures_right_and_what_is_not_known_nowhere() -> None:
    told = table(("run", "rounds"), [("a", "3")]) + facts([("known", "yes"), ("unknown", "")])

    assert '<td>a</td><td class="figure">3</td>' in told
    assert "unknown" not in told
