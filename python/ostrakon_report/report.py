# SPDX-License-Identifier: Apache-2.0
"""A picture with the text and tables that go with it, written as a file."""

import io
from dataclasses import dataclass, field

import jinja2
from matplotlib.figure import Figure

from . import style
from .runs import read_json  # noqa: F401 - pictures take it from here, too


@dataclass
class Table:
    title: str
    head: list
    rows: list  # of texts; the first column is to the left, all others to the right


@dataclass
class Report:
    title: str
    figure: Figure
    facts: list = field(default_factory=list)
    remarks: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    outliers: list = field(default_factory=list)
    step: dict = field(default_factory=dict)  # what ostrakon-plan --time says of a step
    has_words: bool = False  # the page explains the words of a scaling study

    def image(self, ending):
        out = io.BytesIO()
        metadata = {"Date": None} if ending == "svg" else None
        self.figure.savefig(out, format=ending, dpi=110, metadata=metadata)
        return out.getvalue()

    def page(self, template):
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("ostrakon_report"), trim_blocks=True, lstrip_blocks=True,
            autoescape=template.endswith(".html"))
        environment.filters.update(seconds=style.seconds_text, bytes=style.bytes_text)
        svg = self.image("svg").decode()
        picture = jinja2.utils.markupsafe.Markup(svg[svg.index("<svg"):])
        return environment.get_template(template).render(report=self, picture=picture)

    def write(self, path, ending):
        if ending in ("html", "md"):
            content = self.page("page." + ending).encode()
        else:
            content = self.image(ending)
        with open(path, "wb") as file:
            file.write(content)
