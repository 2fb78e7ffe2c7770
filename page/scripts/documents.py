"""Write what the page is built against: the service's OpenAPI document and the schema of a spec."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from automap.planner.spec import JobSpec
from automap.service.app import create_app
from automap.service.settings import Settings


def main(folder: Path) -> None:
    """Write both into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as database:
        app = create_app(Settings(database_url=f"sqlite:///{database}/none.db"))
    (folder / "openapi.json").write_text(json.dumps(app.openapi()), encoding="utf-8")
    schema = JobSpec.model_json_schema()
    (folder / "job-spec.json").write_text(json.dumps(schema), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
