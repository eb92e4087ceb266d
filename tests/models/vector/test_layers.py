from models.vector.layers import layers_of, whole_model
from models.vector.schema import Schema, TensorSpec


def scattered() -> Schema:
    """Layer "a" lies on both sides of layer "b"."""
    return Schema(
        (
            TensorSpec(name="a.weight", shape=(2, 3), layer="a"),
            TensorSpec(name="a.bias", shape=(2,), layer="a"),
            TensorSpec(name="b.bias", shape=(5,), layer="b"),
            TensorSpec(name="a.scale", shape=(1,), layer="a"),
        )
    )


def test_by_tensor_every_tensor_is_a_layer() -> None:
    layers = layers_of(scattered(), "tensor")

    assert [layer.name for layer in layers] == ["a.weight", "a.bias", "b.bias", "a.scale"]
    assert [layer.ranges for layer in layers] == [
        (slice(0, 6),),
        (slice(6, 8),),
        (slice(8, 13),),
        (slice(13, 14),),
    ]


def test_by_layer_neighbouring_tensors_are_one_range() -> None:
    layers = layers_of(scattered(), "layer")

    assert [layer.name for layer in layers] == ["a", "b"]
    assert layers[0].tensors == (0, 1, 3)
    assert layers[0].ranges == (slice(0, 8), slice(13, 14))
    assert layers[1].ranges == (slice(8, 13),)


def test_the_whole_model_is_one_range() -> None:
    (layer,) = whole_model(scattered())

    assert layer.tensors == (0, 1, 2, 3)
    assert layer.ranges == (slice(0, 14),)
