"""Formulas of the pages as MathML, which browsers draw by themselves: no script, no font to load.

`$…$` inside a sentence and fenced blocks of `math` hold TeX; GitHub draws both as well.
"""

import re
from xml.etree.ElementTree import Element, SubElement

from latex2mathml.converter import convert_to_element
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

_INLINE = r"\$(?![\s$])([^$\n]*[^\s$\\])\$(?!\d)"
_FENCED = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\$\$(.*)\$\$", re.DOTALL)


class MathExtension(Extension):
    """Python-Markdown's way to more syntax."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the library's name
        md.preprocessors.register(_Fences(md), "math_fences", 40)  # before superfences (25)
        md.parser.blockprocessors.register(_Blocks(md.parser), "math_blocks", 110)
        # After code in backticks (190) and before escapes (180), as TeX is full of backslashes.
        md.inlinePatterns.register(_Inline(_INLINE, md), "math", 185)


class _Fences(Preprocessor):
    """Blocks of `math` become paragraphs between two dollars each."""

    def run(self, lines: list[str]) -> list[str]:
        text = _FENCED.sub(lambda block: f"$${' '.join(block[1].split())}$$", "\n".join(lines))
        return text.split("\n")


class _Blocks(BlockProcessor):
    """A paragraph between two dollars each is a displayed formula."""

    def test(self, parent: Element, block: str) -> bool:
        return _BLOCK.fullmatch(block) is not None

    def run(self, parent: Element, blocks: list[str]) -> None:
        tex = blocks.pop(0)[2:-2]
        SubElement(parent, "div", {"class": "formula"}).append(_mathml(tex, display="block"))


class _Inline(InlineProcessor):
    def handleMatch(  # type: ignore[override]  # noqa: N802
        self, m: re.Match[str], data: str
    ) -> tuple[Element, int, int]:
        return _mathml(m[1], display="inline"), m.start(0), m.end(0)


def _mathml(tex: str, *, display: str) -> Element:
    formula = convert_to_element(tex, display=display)
    # What the converter does not know it passes on as text, which no reader should meet.
    if unknown := [text for text in formula.itertext() if text.startswith("\\") or text == "&"]:
        raise ValueError(f"no formula that can be drawn, because of {unknown[0]}: {tex}")
    return formula


def makeExtension(**_options: object) -> MathExtension:  # noqa: N802 - the library's name
    return MathExtension()
