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
LOGIN = "log in with `hf auth login`, or put a token that may write into the environment variable HF_TOKEN"


def check_hub(repo: str) -> HfApi:
    """Return the hub's API if it answers and accepts the login; else raise a UserError."""
    try:
        validate_repo_id(repo)
    except hub.HFValidationError as error:
        raise UserError(f"--push {one_line(repo)}: {one_line(error)}") from None
    if repo.count("/") != 1:
        raise UserError(f"--push {repo}: expected OWNER/NAME, such as me/pocket-trained")
    api = HfApi(library_name="smopd")
    with _explain_errors(repo, api):
        api.whoami()
    return api


def push(api: HfApi, repo: str, folder: Path, private: bool = False) -> str:
    """Upload a folder to a model repository, created if needed; return its URL."""
    with _explain_errors(repo, api):
        url = api.create_repo(repo, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Trained with smopd")
    return str(url)


@contextmanager
def _explain_errors(repo: str, api: HfApi) -> Iterator[None]:
    try:
        yield
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
    raise UserError(f"--push {repo}: {problem}")
