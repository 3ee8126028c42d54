"""Push an exported folder to the Hugging Face hub; `check_hub` comes before the export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub import errors as hub
from huggingface_hub.utils import validate_repo_id

from smopd.errors import UserError
from smopd.formatting import one_line

# With the errors of the HTTP client that the installed huggingface_hub is built on.
UNREACHED: tuple[type[Exception], ...]
UNREACHED = (OSError, *(kind for kind in hub.HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError"))
LOGIN = "log in with `hf auth login`, or set HF_TOKEN (in Python: token=) to a token that may write"


def check_hub(repo: str) -> HfApi:
    """Return the hub's API if it answers and accepts the login; else raise a UserError."""
    api = HfApi(library_name="smopd")
    with _explain_errors(f"--push {one_line(repo)}", api):
        validate_repo_id(repo)
        if repo.count("/") != 1:
            raise UserError(f"--push {repo}: expected OWNER/NAME, such as me/pocket-trained")
        api.whoami()
    return api


def push(api: HfApi, repo: str, folder: Path, private: bool | None, what: str) -> tuple[str, str]:
    """Upload to a repository, created if needed; return its and the commit's URL. `what` begins errors."""
    with _explain_errors(what, api):
        url = api.create_repo(repo, private=private, exist_ok=True)
        message = "Trained with smopd"
        commit = api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message=message)
    return str(url), str(commit.commit_url)


@contextmanager
def _explain_errors(what: str, api: HfApi) -> Iterator[None]:
    try:
        yield
    except hub.HFValidationError as error:
        problem = one_line(error)
    except hub.LocalTokenNotFoundError:
        problem = f"no token for {api.endpoint}; {LOGIN}"
    except hub.OfflineModeIsEnabled:
        problem = "HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it"
    except hub.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        advice = f"; {LOGIN}" if status in (401, 403) else ""
        problem = f"{api.endpoint} refused ({status}): {one_line(error)}{advice}"
    except UNREACHED as error:
        why = one_line(error) or type(error).__name__
        problem = f"{api.endpoint} cannot be reached: {why}; see to the network"
    else:
        return
    raise UserError(f"{what}: {problem}")
