"""Names that would do harm where a text is taken for more than data."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = ("'", '"', "%", "%27", "\\", "; --", "*", "?", "[", "]", "ü", "中", "😀", "=", "&", "#", ",", "a")

ODD_TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9),
    st.sampled_from(["' OR '1'='1", "x" * 4_000, "%" * 1_000, "\"'\\%[" * 800]),
).filter(lambda text: text == text.strip() and not text.startswith("="))
