"""Called by mkdocs while it builds the site: adds pages from outside docs/ and the reference of the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from treetop.cli.main import app

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/results.md",
    "benchmarks/results/*.json",
    "packaging/*/*.yml",
    "packaging/*/*.json",
)
COMMANDS = "<!-- commands -->"
# What lets the search of a page that was opened as a file work; the theme would fetch it.
SHIM, OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim.js"  # version 1.0.4
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
CELL, CODE = re.compile(r"<td.*?</td>", re.DOTALL), re.compile(r"(?<=<code>)[^<]+")
BREAK = re.compile(r"::|(?<=\w)[/_](?=\w)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds files of the repository that pages link to, under their own names."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are those of the repository, where a page of docs/ stands one folder deeper than on the site."""
    if page.parent is None:  # a tab of its own has no other pages to list beside it
        page.meta["hide"] = ["navigation"]
    here = _place_in_repository(page.file)

    def on_site(found: re.Match[str]) -> str:
        target = (ROOT / here).parent / found[1]
        if "://" in found[1] or not target.exists():
            return found[1]
        return _from(page.file.src_uri, _place_on_site(target.resolve().relative_to(ROOT)))

    return LINK.sub(on_site, markdown).replace(COMMANDS, _commands())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Long names in tables may be broken after `/`, `_` and `::`, and nowhere else."""
    return CELL.sub(lambda cell: CODE.sub(lambda code: BREAK.sub(r"\g<0><wbr>", code[0]), cell[0]), html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Pages fetch nothing from elsewhere."""
    return output.replace(SHIM, _from(page.url, Path(OWN_SHIM)))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    return output_content.replace(SHIM, OWN_SHIM)


def _place_in_repository(file: File) -> Path:
    inside = Path("docs") / file.src_uri
    return inside if (ROOT / inside).exists() else Path(file.src_uri)


def _place_on_site(path: Path) -> Path:
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def _from(page: str, target: Path) -> str:
    up = len(Path(page).parts) - 1
    return "../" * up + str(target)


def _commands() -> str:
    """A section for each command of the command line, from the same declarations as its --help."""
    group: Any = typer.main.get_command(app)
    return "\n\n".join(_command(name, command) for name, command in group.commands.items())


def _command(name: str, command: Any) -> str:
    about, *examples = command.help.split("Example: ")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["treetop", name, "[OPTIONS]", *map(_usage, arguments)])
    parts = [f"## treetop {name}", _plain(about), f"```text\n{usage}\n```"]
    if examples:
        parts.append("\n".join(["```sh", *(example.strip() for example in examples), "```"]))
    rows = [f"| {_names(p)} | {_plain(p.help)} | |" for p in arguments]
    rows += [f"| {_names(p)} | {_plain(p.help)} | {_default(p)} |" for p in options]
    parts.append("\n".join(["| | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _usage(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _names(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    given = [parameter.name.upper()] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    names = ", ".join(f"`{name}`" for name in given)
    return f"{names} (`{parameter.envvar}`)" if parameter.envvar else names


def _default(option: Any) -> str:
    if option.default is None or option.is_flag:
        return ""
    values = option.default if isinstance(option.default, list | tuple) else [option.default]
    return ", ".join(f"`{value}`" for value in values)


def _plain(text: str | None) -> str:
    """Help as Markdown on one line a paragraph; a bar would end the cell of a table."""
    paragraphs = [" ".join(part.split()) for part in (text or "").strip().split("\n\n")]
    return "\n\n".join(paragraphs).replace("|", "\\|")
