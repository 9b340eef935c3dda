"""The model, the data, training and testing. Nothing here knows of Flower or of secure aggregation."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # Everybody's name for it.
from peft import LoraConfig, TaskType, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import BertConfig, BertForSequenceClassification

WORDS, LENGTH = 64, 16
Arrays = dict[str, torch.Tensor]
Data = tuple[torch.Tensor, torch.Tensor]


def new_model(hidden: int) -> torch.nn.Module:
    """Return a transformer from a configuration, the same on every node, with adapters; only they are trained.

    A real app would load a pretrained model here. Nothing is downloaded: the frozen part is random.
    """
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2, intermediate_size=2 * hidden,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2,
    )  # fmt: skip
    adapters = LoraConfig(TaskType.SEQ_CLS, r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(shape), adapters)


def adapters_of(model: torch.nn.Module) -> Arrays:
    """Return what travels: the adapters and the head."""
    return get_peft_model_state_dict(model)


def set_adapters(model: torch.nn.Module, arrays: Arrays) -> None:
    """Put adapters that came from elsewhere into the model."""
    set_peft_model_state_dict(model, arrays)


def load_data(part: int, samples: int) -> Data:
    """Return one node's sentences and their topics: each topic prefers its own half of the words."""
    source = torch.Generator().manual_seed(1000 + part)
    topics = torch.randint(0, 2, (samples,), generator=source)
    own = torch.rand(samples, LENGTH, generator=source) < 0.8
    words = torch.randint(0, WORDS // 2, (samples, LENGTH), generator=source)
    return words + WORDS // 2 * (own == topics[:, None].bool()), topics


def train(model: torch.nn.Module, data: Data, epochs: int, learning_rate: float) -> float:
    """Train the adapters in place; return the mean loss of the last epoch."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=learning_rate)
    model.train()
    loss = 0.0
    for _ in range(epochs):
        losses = []
        for sentences, labels in zip(*(part.split(16) for part in data), strict=True):
            optimiser.zero_grad()
            batch_loss = F.cross_entropy(model(input_ids=sentences).logits, labels)
            batch_loss.backward()
            optimiser.step()
            losses.append(float(batch_loss.detach()))
        loss = sum(losses) / len(losses)
    return loss


@torch.no_grad()
def test(model: torch.nn.Module, data: Data) -> float:
    """Return the accuracy."""
    model.eval()
    sentences, labels = data
    return float((model(input_ids=sentences).logits.argmax(1) == labels).float().mean())
