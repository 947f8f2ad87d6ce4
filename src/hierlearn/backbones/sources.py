"""Sources of transformers: a folder, or a name to download, read without surprises.

Code that comes with a model is never run, and only safetensors are read, never pickles. Whatever
goes wrong is one sentence. A name that cannot be downloaded is found out with one request.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.backbones.compiled import declare_operators
from hierlearn.errors import HierlearnError
from hierlearn.files.reading import is_file, is_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 5  # seconds until a server that does not answer counts as unreachable
# Keys of a configuration that say nothing about the network, or would load something else.
DROPPED = (
    *("transformers_version", "architectures", "dtype", "torch_dtype", "problem_type"),
    *("id2label", "label2id", "task_specific_params", "auto_map", "quantization_config"),
    *("attn_implementation", "experts_implementation", "custom_pipelines", "name_or_path"),
    *("return_dict", "output_hidden_states", "output_attentions", "use_cache"),
)


def find_transformers() -> Any:
    """Import transformers, or say how to install it."""
    declare_operators()
    try:
        import transformers
    except ImportError as error:
        raise HierlearnError(
            f"text encoders need transformers ({error}); install it with: pip install transformers"
        ) from None
    return transformers


def locate(source: str) -> tuple[str, dict[str, Any]]:
    """Return where to read a source from, and how, as ``from_pretrained`` takes it.

    Args:
        source: a folder, or a name to download.
    """
    safe: dict[str, Any] = {"trust_remote_code": False}
    path = Path(source).expanduser()
    if is_folder(path):
        if not (path / "config.json").is_file():
            raise HierlearnError(
                f"{source} has no config.json; a model is a folder that save_pretrained has written"
            )
        return str(path), {**safe, "local_files_only": True}
    if is_file(path):
        raise HierlearnError(f"{source} is a file; name the folder of a model of transformers")
    if source[0] in "/.~" or source.count("/") > 1 or "\\" in source:
        raise HierlearnError(
            f"{source}: no such folder; name the folder of a model that save_pretrained has written"
        )
    return source, {**safe, "local_files_only": not can_download(source)}


def can_download(name: str) -> bool:
    """Whether a model can be downloaded; False where it is in the cache of transformers only."""
    try:
        import huggingface_hub as hub  # far quicker than transformers, which brings it
        from huggingface_hub import errors
    except ImportError:
        find_transformers()
        raise

    cached = isinstance(hub.try_to_load_from_cache(name, "config.json"), str)
    if hub.constants.HF_HUB_OFFLINE:
        if cached:
            return False
        raise HierlearnError(f"{name} is no folder, and HF_HUB_OFFLINE forbids to download it")
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(name, "config.json"), timeout=TIMEOUT)
    except (errors.RepositoryNotFoundError, errors.EntryNotFoundError, errors.HFValidationError):
        raise HierlearnError(
            f"{name} is neither a folder nor a model that can be downloaded; check the name"
        ) from None
    except Exception as error:  # of the connection, which can fail in many ways
        if cached:
            return False
        raise HierlearnError(
            f"{name} is no folder and cannot be downloaded ({first_line(error)}); name the folder "
            f"of a model"
        ) from None
    return True


@contextmanager
def reading(source: str, what: str) -> Iterator[None]:
    """Turn whatever transformers raises into one sentence, and keep it quiet.

    Args:
        source: what is read.
        what: the part of it, such as "tokenizer".
    """
    try:
        with quiet():
            yield
    except HierlearnError:
        raise
    except Exception as error:
        text = str(error)
        if "trust_remote_code" in text or "custom code" in text:
            raise HierlearnError(
                f"{source} needs code of its own, which is never run; use a model whose code is "
                f"part of transformers"
            ) from None
        if "model.safetensors" in text:
            raise HierlearnError(
                f"{source} has no weights as safetensors, and others are not read; save it again "
                f"with save_pretrained"
            ) from None
        raise HierlearnError(
            f"the {what} of {source} cannot be read ({first_line(error)}); name another model, or "
            f"save it again with save_pretrained"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing; progress bars stay where there is a terminal."""
    logging = find_transformers().utils.logging
    import huggingface_hub.utils as hub

    utils: Any = hub
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hidden = not sys.stderr.isatty()
    downloads = hidden and not utils.are_progress_bars_disabled()
    logging.set_verbosity_error()
    if hidden:
        logging.disable_progress_bar()
    if downloads:
        utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if hidden and bars:
            logging.enable_progress_bar()
        if downloads:
            utils.enable_progress_bars()


def first_line(error: BaseException) -> str:
    """Return the beginning of a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:160]


def plain(values: Any) -> Any:
    """Return a configuration without what is not about the network; see ``DROPPED``."""
    if isinstance(values, dict):
        return {
            str(key): plain(value)
            for key, value in values.items()
            if key not in DROPPED and not str(key).startswith("_")
        }
    return [plain(one) for one in values] if isinstance(values, (list, tuple)) else values
