"""Models by name."""

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.learning import Dataset
from sparsesecagg.lab.learning.models import MODELS, make_model
from sparsesecagg.lab.learning.models.catalogue import PRESETS


def images(*shape: int) -> Dataset:
    return Dataset.from_arrays(np.zeros((20, *shape)), np.arange(20) % 10)


@pytest.mark.parametrize(
    ("name", "shape", "dim"),
    [
        ("softmax", (64,), 650),
        ("mlp", (64,), 9_610),
        ("strided-cnn", (1, 28, 28), 21_840),
        ("strided-cnn", (3, 32, 32), 31_340),
        ("small-cnn", (1, 28, 28), 21_840),
        ("mnist-cnn", (1, 28, 28), 1_663_370),
        ("cifar-cnn", (3, 32, 32), 165_122),
    ],
)
def test_models_have_the_sizes_of_the_papers(name: str, shape, dim: int) -> None:
    """21,840 and 1,663,370 parameters exactly, about 165,000 for CIFAR-10."""
    if len(shape) > 1:
        pytest.importorskip("torch")
    data = images(*shape)
    model = make_model(name, data)
    assert model.dim == dim and model.name == name
    assert model.evaluate(model.initial(0), data.train_x[:2], data.train_y[:2]).samples == 2


def test_unknown_names_list_the_known_ones() -> None:
    """A typing error is answered with the choice."""
    with pytest.raises(InvalidInput, match=", ".join(MODELS)):
        make_model("cnn", images(64))


def test_a_model_for_other_images_says_which_would_do() -> None:
    """A CIFAR network on digits."""
    with pytest.raises(InvalidInput, match="use one of softmax, mlp$"):
        make_model("cifar-cnn", images(64))
    with pytest.raises(InvalidInput, match=r"takes images, .* has samples of \(64,\)"):
        make_model("strided-cnn", images(64))


def test_without_torch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded demo needs none; the convolutional networks do."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[torch\]'"):
        make_model("small-cnn", images(1, 28, 28))
    assert make_model(PRESETS["digits"].model, images(64)).dim == 9_610
