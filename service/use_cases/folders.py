"""Which folders jobs may use: those that the operator names, and with keys no others."""

from automap.executor.folders import RunFolders, outside
from automap.service.errors.fields import FieldError, shown
from automap.service.runs.checked_settings import RunSettings
from automap.service.settings import Settings
from automap.service.storage import api_keys
from automap.service.storage.database import Database


def allowed_folders(database: Database, settings: Settings) -> RunFolders | None:
    """The folders of jobs; None: a service without stored keys is its user's own, and has no rule.

    Code never lies in the runs' folder, where jobs themselves write.
    """
    if settings.allowed_folders is None:
        with database.reading() as session:
            if not api_keys.is_any(session):
                return None
    named = [str(folder) for folder in settings.allowed_folders or ()]
    return RunFolders(code=named, data=[*named, str(settings.runs_folder.absolute())])


def folder_errors(settings: RunSettings, folders: RunFolders | None) -> list[FieldError]:
    """What of a job's settings lies elsewhere, as far as this machine sees the cluster's files."""
    if folders is None:
        return []
    return [
        FieldError(
            field=each.field, value=shown(each.value), message=each.message, remedy=each.remedy
        )
        for each in outside(settings, folders)
    ]
