"""Writes the folders of `folders/`: small models of transformers with random values, and what they answer and learn.

It needs PyTorch, transformers, timm and torchvision, which the tests do not: `pip install torch transformers timm torchvision`, then
`python -m tests.session.importing.make_folders [NAME ...]`.
Each folder has what save_pretrained() writes, `expected.npz` (feeds by their names here, `outputs` of evaluation and the `loss` of
training), and `after.safetensors`: all tensors after one step of SGD with the rate RATE, under their names there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.needs import torch

HERE = Path(__file__).parent / "folders"
RATE = 0.1
LENGTH, VOCAB = 10, 64
SIZES = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT = {**SIZES, "vocab_size": VOCAB, "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 12}


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Give every value something random, so that none is 0 or 1 and each counts."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"):
                value.mul_(1 + 0.5 * torch.rand_like(value))
            elif value.dtype.is_floating_point:
                value.add_(0.2 * torch.randn_like(value))
    return model


def tokens(rows: int, pad: int | None, first: int = 3) -> np.ndarray:
    """Return ids whose rows end in padding after 4, 5, ... tokens."""
    ids = np.random.default_rng(1).integers(first, VOCAB, (rows, LENGTH))
    if pad is not None:
        for i in range(rows):
            ids[i, 4 + i :] = pad
    return ids


def write(name: str, model: torch.nn.Module, feeds: dict[str, np.ndarray], run: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Write a folder.

    Args:
        name: of the folder.
        model: in evaluation.
        feeds: by their names here.
        run: model, feeds -> outputs, loss.
    """
    from safetensors.torch import save_file

    folder = HERE / name
    given = {key: torch.from_numpy(value) for key, value in feeds.items()}
    model.eval()
    with torch.no_grad():
        outputs = run(model, **given)[0].numpy()
    model.save_pretrained(folder)
    if run(model, **given)[1] is None:
        np.savez_compressed(folder / "expected.npz", outputs=outputs, **feeds)
        return
    model.train()
    model.zero_grad()
    loss = run(model, **given)[1]
    loss.backward()
    with torch.no_grad():
        for value in model.parameters():
            if value.grad is not None:
                value -= RATE * value.grad
    np.savez_compressed(folder / "expected.npz", outputs=outputs, loss=loss.detach().numpy(), **feeds)
    kept = {key: value.contiguous().clone() for key, value in model.state_dict().items() if value.dtype.is_floating_point}
    save_file(kept, folder / "after.safetensors", {"format": "pt"})
    sys.stdout.write(f"{name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes\n")


def classified(model: torch.nn.Module, input_ids: torch.Tensor, label: torch.Tensor, pad: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    found = model(input_ids=input_ids, attention_mask=(input_ids != pad).long(), labels=label[:, 0])
    return found.logits, found.loss


def labels(rows: int, classes: int = 3) -> np.ndarray:
    return np.arange(rows).reshape(rows, 1) % classes


def tokenizer(folder: Path) -> None:
    """Write a tokenizer.json as BERT has it, learned from a few sentences."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=special)
    made.train_from_iterator(["the room was clean and quiet", "the soup was cold", "nobody answered when I called them again"], trainer)
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.save(str(folder / "tokenizer.json"))


def bert() -> None:
    import transformers as hf

    config = hf.BertConfig(**BERT, num_labels=3)
    write("bert", shaken(hf.BertForSequenceClassification(config)), {"input_ids": tokens(4, 0), "label": labels(4)}, classified)
    tokenizer(HERE / "bert")


def bert_masked() -> None:
    import transformers as hf

    config = hf.BertConfig(**BERT, hidden_act="gelu_new")
    ids = tokens(3, 0)
    told = np.where(np.arange(LENGTH) % 3 == 1, ids, -100) * (ids > 0) - 100 * (ids == 0)
    write("bert_masked", shaken(hf.BertForMaskedLM(config)), {"input_ids": ids, "labels": told}, masked)


def masked(model: torch.nn.Module, input_ids: torch.Tensor, labels: torch.Tensor, pad: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    found = model(input_ids=input_ids, attention_mask=(input_ids != pad).long(), labels=labels)
    return found.logits, found.loss


def roberta() -> None:
    import transformers as hf

    config = hf.RobertaConfig(**{**BERT, "max_position_embeddings": 14}, type_vocab_size=1, pad_token_id=1, num_labels=3)
    feeds = {"input_ids": tokens(4, 1), "label": labels(4)}
    write("roberta", shaken(hf.RobertaForSequenceClassification(config)), feeds, lambda *a, **b: classified(*a, **b, pad=1))


def distilbert() -> None:
    import transformers as hf

    config = hf.DistilBertConfig(
        vocab_size=VOCAB, dim=8, hidden_dim=12, n_layers=2, n_heads=2, max_position_embeddings=12, num_labels=3,
        dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
    )  # fmt: skip
    write("distilbert", shaken(hf.DistilBertForSequenceClassification(config)), {"input_ids": tokens(4, 0), "label": labels(4)}, classified)


GPT2 = {
    "vocab_size": VOCAB, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 12,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip


def gpt2() -> None:
    import transformers as hf

    ids = tokens(3, None)
    write("gpt2", shaken(hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2))), {"input_ids": ids, "next": np.roll(ids, 1)}, language)
    tokenizer(HERE / "gpt2")


def language(model: torch.nn.Module, input_ids: torch.Tensor, next: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = model(input_ids=input_ids).logits
    return scores, torch.nn.functional.cross_entropy(scores.flatten(0, 1), next.flatten())


def gpt2_classes() -> None:
    import transformers as hf

    config = hf.GPT2Config(**GPT2, n_inner=12, num_labels=3, pad_token_id=0)
    write("gpt2_classes", shaken(hf.GPT2ForSequenceClassification(config)), {"input_ids": tokens(4, 0), "label": labels(4)}, classified)


def pictures(rows: int, side: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((rows, 3, side, side)).astype(np.float32)


def seen(model: torch.nn.Module, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = model(pixel_values=image, labels=label[:, 0])
    return found.logits, found.loss


def vit() -> None:
    import transformers as hf

    config = hf.ViTConfig(**SIZES, hidden_size=8, intermediate_size=12, image_size=8, patch_size=4, num_labels=3)
    write("vit", shaken(hf.ViTForImageClassification(config)), {"image": pictures(3, 8), "label": labels(3)}, seen)


def resnet(kind: str, sizes: list[int]) -> torch.nn.Module:
    import transformers as hf

    config = hf.ResNetConfig(embedding_size=4, hidden_sizes=sizes, depths=[2, 1, 1, 1], layer_type=kind, num_labels=3, image_size=40)
    return shaken(hf.ResNetForImageClassification(config))


def resnet_bottleneck() -> None:
    write("resnet", resnet("bottleneck", [8, 8, 8, 8]), {"image": pictures(3, 40), "label": labels(3)}, seen)


def resnet_basic() -> None:
    write("resnet_basic", resnet("basic", [4, 4, 4, 8]), {"image": pictures(3, 40), "label": labels(3)}, seen)


def bert_embedding() -> None:
    """Vectors of texts as sentence-transformers makes them; no loss is given, so that none is trained."""
    import transformers as hf

    write("bert_embedding", shaken(hf.BertModel(hf.BertConfig(**BERT))), {"input_ids": tokens(4, 0)}, embedded)


def embedded(model: torch.nn.Module, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    real = (input_ids != 0).long()
    rows = model(input_ids=input_ids, attention_mask=real).last_hidden_state * real[..., None]
    return torch.nn.functional.normalize(rows.sum(1) / real.sum(1, keepdim=True)), None


def bert_tokens() -> None:
    import transformers as hf

    ids = tokens(3, 0)
    told = np.where(ids > 0, ids % 3, -100)
    model = shaken(hf.BertForTokenClassification(hf.BertConfig(**BERT, num_labels=3)))
    write("bert_tokens", model, {"input_ids": ids, "labels": told}, masked)


def roberta_masked() -> None:
    import transformers as hf

    config = hf.RobertaConfig(**{**BERT, "max_position_embeddings": 14}, type_vocab_size=1, pad_token_id=1)
    ids = tokens(3, 1)
    feeds = {"input_ids": ids, "labels": np.where(ids > 1, ids, -100)}
    write("roberta_masked", shaken(hf.RobertaForMaskedLM(config)), feeds, lambda *a, **b: masked(*a, **b, pad=1))


def distilbert_masked() -> None:
    import transformers as hf

    config = hf.DistilBertConfig(
        vocab_size=VOCAB, dim=8, hidden_dim=12, n_layers=2, n_heads=2, max_position_embeddings=12, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    ids = tokens(3, 0)
    told = np.where(ids > 0, ids, -100)
    write("distilbert_masked", shaken(hf.DistilBertForMaskedLM(config)), {"input_ids": ids, "labels": told}, masked)


LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 12, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip


def llama() -> None:
    import transformers as hf

    ids = tokens(3, None)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, rope_theta=500.0, attention_bias=True, mlp_bias=True))
    write("llama", shaken(model), {"input_ids": ids, "next": np.roll(ids, 1)}, language)
    tokenizer(HERE / "llama")


def llama_classes() -> None:
    import transformers as hf

    config = hf.LlamaConfig(**LLAMA, head_dim=6, num_labels=3, pad_token_id=0)
    write("llama_classes", shaken(hf.LlamaForSequenceClassification(config)), {"input_ids": tokens(4, 0), "label": labels(4)}, classified)


def mistral() -> None:
    import transformers as hf

    ids = tokens(3, None)
    model = hf.MistralForCausalLM(hf.MistralConfig(**LLAMA, sliding_window=11))
    write("mistral", shaken(model), {"input_ids": ids, "next": np.roll(ids, 1)}, language)


def qwen2() -> None:
    import transformers as hf

    ids = tokens(3, None)
    model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**LLAMA, tie_word_embeddings=True))
    write("qwen2", shaken(model), {"input_ids": ids, "next": np.roll(ids, 1)}, language)


#: The first tokens of a text, and how many follow.
PROMPT, ADDED = "the room was", 8


def decoder(name: str, model: torch.nn.Module) -> None:
    """Write a folder with a tokenizer, and `greedy.json`: the most probable tokens behind a prompt, without padding and unknown ones."""
    from tokenizers import Tokenizer

    ids = tokens(3, None)
    write(name, shaken(model), {"input_ids": ids, "next": np.roll(ids, 1)}, language)
    tokenizer(HERE / name)
    model = type(model).from_pretrained(HERE / name).eval()
    seen = Tokenizer.from_file(str(HERE / name / "tokenizer.json")).encode(PROMPT, add_special_tokens=False).ids
    more: list[int] = []
    with torch.no_grad():
        for _ in range(ADDED):
            scores = model(input_ids=torch.tensor([[*seen, *more]])).logits[0, -1]
            scores[:2] = -np.inf
            more.append(int(scores.argmax()))
    (HERE / name / "greedy.json").write_text(json.dumps({"prompt": PROMPT, "tokens": more}))


#: Fewer rows see another token than there are positions, and the mask of the window counts.
FAR = {**LLAMA, "max_position_embeddings": 16}


def llama_scaled() -> None:
    import transformers as hf

    turns = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    rope = {"rope_type": "llama3", "rope_theta": 500.0, **turns}
    decoder("llama_scaled", hf.LlamaForCausalLM(hf.LlamaConfig(**FAR, rope_parameters=rope)))


def mistral_window() -> None:
    import transformers as hf

    decoder("mistral_window", hf.MistralForCausalLM(hf.MistralConfig(**FAR, sliding_window=4)))


def qwen3() -> None:
    import transformers as hf

    decoder("qwen3", hf.Qwen3ForCausalLM(hf.Qwen3Config(**FAR, head_dim=6)))


def gemma() -> None:
    import transformers as hf

    decoder("gemma", hf.GemmaForCausalLM(hf.GemmaConfig(**FAR, head_dim=6)))


def phi() -> None:
    import transformers as hf

    sizes = {**FAR, "hidden_size": 16, "num_key_value_heads": 4}
    decoder("phi", hf.PhiForCausalLM(hf.PhiConfig(**sizes, partial_rotary_factor=0.5)))


def phi3() -> None:
    import transformers as hf

    decoder("phi3", hf.Phi3ForCausalLM(hf.Phi3Config(**FAR, pad_token_id=0, sliding_window=5)))


def deit() -> None:
    import transformers as hf

    config = hf.DeiTConfig(**SIZES, hidden_size=8, intermediate_size=12, image_size=8, patch_size=4, num_labels=3)
    write("deit", shaken(hf.DeiTForImageClassification(config)), {"image": pictures(3, 8), "label": labels(3)}, seen)
    write("deit_teacher", shaken(hf.DeiTForImageClassificationWithTeacher(config)), {"image": pictures(3, 8), "label": labels(3)}, taught)


def taught(model: torch.nn.Module, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = model(pixel_values=image).logits
    return scores, torch.nn.functional.cross_entropy(scores, label[:, 0])


def convnext() -> None:
    import transformers as hf

    config = hf.ConvNextConfig(hidden_sizes=[4, 4, 6, 8], depths=[1, 1, 2, 1], image_size=32, patch_size=2, num_labels=3)
    write("convnext", shaken(hf.ConvNextForImageClassification(config)), {"image": pictures(3, 32), "label": labels(3)}, seen)


def mobilenet_v1() -> None:
    """Odd sides, so that SAME adds as much on both sides at some places and not at others."""
    import transformers as hf

    config = hf.MobileNetV1Config(depth_multiplier=0.05, min_depth=2, image_size=45, classifier_dropout_prob=0.0, num_labels=3)
    write("mobilenet_v1", shaken(hf.MobileNetV1ForImageClassification(config)), {"image": pictures(4, 45), "label": labels(4)}, seen)


def mobilenet_v2() -> None:
    import transformers as hf

    config = hf.MobileNetV2Config(
        depth_multiplier=0.06, min_depth=2, depth_divisible_by=2, expand_ratio=2.0, finegrained_output=False, tf_padding=False,
        image_size=40, classifier_dropout_prob=0.0, num_labels=3,
    )  # fmt: skip
    write("mobilenet_v2", shaken(hf.MobileNetV2ForImageClassification(config)), {"image": pictures(4, 40), "label": labels(4)}, seen)


def efficientnet() -> None:
    """Odd and even sides, a stage of two blocks, and one whose filters stand in the middle of the picture."""
    import transformers as hf

    config = hf.EfficientNetConfig(
        width_coefficient=0.25, depth_coefficient=1.1, depth_divisor=2, image_size=38, in_channels=[32, 24, 40, 56],
        out_channels=[24, 40, 56, 80],
        kernel_sizes=[3, 3, 5, 3], strides=[1, 2, 2, 1], num_block_repeats=[1, 2, 1, 1], expand_ratios=[1, 2, 3, 2], hidden_dim=320,
        depthwise_padding=[5], dropout_rate=0.0, drop_connect_rate=0.0, num_labels=3,
    )  # fmt: skip
    write("efficientnet", shaken(hf.EfficientNetForImageClassification(config)), {"image": pictures(4, 38), "label": labels(4)}, seen)


def named(model: torch.nn.Module, config: dict[str, object]) -> torch.nn.Module:
    """Return a model of timm or torchvision that is saved with a config of ours, which is that of transformers."""
    from safetensors.torch import save_file

    def save(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**config, "num_labels": 3}, indent=1))
        save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors", {"format": "pt"})

    model.save_pretrained = save
    return shaken(model)


def scored(model: torch.nn.Module, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = model(image)
    return scores, torch.nn.functional.cross_entropy(scores, label[:, 0])


#: Of EfficientNet's stages: filters, stride, how much wider the blocks are, channels in and out, blocks. All channels are multiples of 8
#: where they are multiplied by 0.25: timm and torchvision round those between, too.
STAGES = [(3, 1, 1, 32, 64, 2), (3, 2, 2, 64, 96, 2), (5, 2, 3, 96, 64, 1), (3, 1, 2, 64, 32, 1)]
EFFICIENT = {
    "model_type": "efficientnet", "width_coefficient": 0.25, "depth_coefficient": 1.0, "depth_divisor": 8, "image_size": 38,
    "kernel_sizes": [3, 3, 5, 3], "strides": [1, 2, 2, 1], "expand_ratios": [1, 2, 3, 2], "in_channels": [32, 64, 96, 64],
    "out_channels": [64, 96, 64, 32], "num_block_repeats": [2, 2, 1, 1], "batch_norm_eps": 1e-5, "batch_norm_momentum": 0.1,
    "even_padding": True, "dropout_rate": 0.0,
}  # fmt: skip


def efficientnet_timm() -> None:
    from functools import partial

    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.efficientnet import EfficientNet

    said = [[f"{'ds' if e == 1 else 'ir'}_r{n}_k{k}_s{s}_e{e}_c{out}_se0.25"] for k, s, e, _, out, n in STAGES]
    channels = partial(round_channels, multiplier=0.25, divisor=8)
    sizes = {"num_features": channels(1280), "stem_size": 32, "round_chs_fn": channels, "act_layer": torch.nn.SiLU}
    model = EfficientNet(decode_arch_def(said), num_classes=3, norm_layer=torch.nn.BatchNorm2d, **sizes)
    write("efficientnet_timm", named(model, EFFICIENT), {"image": pictures(4, 38), "label": labels(4)}, scored)


def efficientnet_tf_timm() -> None:
    """Padded as TensorFlow does: the second block that leaves out pixels sees an odd side, 19."""
    from functools import partial

    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.efficientnet import EfficientNet

    said = [[f"{'ds' if e == 1 else 'ir'}_r{n}_k{k}_s{s}_e{e}_c{out}_se0.25"] for k, s, e, _, out, n in STAGES]
    channels = partial(round_channels, multiplier=0.25, divisor=8)
    sizes = {"num_features": channels(1280), "stem_size": 32, "round_chs_fn": channels, "act_layer": torch.nn.SiLU}
    norm = partial(torch.nn.BatchNorm2d, eps=1e-3)
    model = EfficientNet(decode_arch_def(said), num_classes=3, norm_layer=norm, pad_type="same", **sizes)
    config = {**{key: value for key, value in EFFICIENT.items() if key != "even_padding"}, "batch_norm_eps": 1e-3, "same_padding": True}
    write("efficientnet_tf_timm", named(model, config), {"image": pictures(4, 38), "label": labels(4)}, scored)


def efficientnet_torchvision() -> None:
    """Stages are numbered up to 8, where the layer behind them is: three of a single block are added."""
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    stages = [*STAGES, (3, 1, 1, 32, 64, 1), (3, 1, 1, 64, 32, 1), (3, 1, 1, 32, 64, 1)]
    setting = [MBConvConfig(e, k, s, into // 4, out // 4, n) for k, s, e, into, out, n in stages]
    names = ("kernel_sizes", "strides", "expand_ratios", "in_channels", "out_channels", "num_block_repeats")
    config = {**EFFICIENT, **{name: list(values) for name, values in zip(names, zip(*stages, strict=True), strict=True)}}
    model = EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=3, last_channel=320)
    write("efficientnet_torchvision", named(model, config), {"image": pictures(4, 38), "label": labels(4)}, scored)


MOBILE = {
    "model_type": "mobilenet_v2", "depth_multiplier": 0.06, "min_depth": 8, "depth_divisible_by": 8, "image_size": 40, "tf_padding": False,
    "layer_norm_eps": 1e-5, "classifier_dropout_prob": 0.0, "finegrained_output": False, "batch_norm_momentum": 0.1, "expand_ratio": 2.0,
}  # fmt: skip
#: Of MobileNetV2's stages: channels, blocks, stride.
MOBILE_STAGES = [(16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)]


def mobilenet_v2_torchvision() -> None:
    from torchvision.models.mobilenetv2 import MobileNetV2

    setting = [[1 if i == 0 else 2, *stage] for i, stage in enumerate(MOBILE_STAGES)]
    model = MobileNetV2(num_classes=3, width_mult=0.06, inverted_residual_setting=setting, round_nearest=8, dropout=0.0)
    config = {**MOBILE, "finegrained_output": True}
    model.features[1].use_res_connect = False  # its channels in and out are the same only because they are so few
    write("mobilenet_v2_torchvision", named(model, config), {"image": pictures(4, 40), "label": labels(4)}, scored)


def mobilenet_v2_timm() -> None:
    from functools import partial

    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.efficientnet import EfficientNet

    torch.manual_seed(10)  # with many others PyTorch's own float32 is off by 1e-5 or more
    said = [["ds_r1_k3_s1_c16"], *([f"ir_r{n}_k3_s{s}_e2_c{out}"] for out, n, s in MOBILE_STAGES[1:])]
    channels = partial(round_channels, multiplier=0.06, divisor=8)
    sizes = {"num_features": channels(1280), "stem_size": 32, "round_chs_fn": channels, "act_layer": torch.nn.ReLU6}
    model = EfficientNet(decode_arch_def(said), num_classes=3, norm_layer=torch.nn.BatchNorm2d, **sizes)
    model.blocks[0][0].has_skip = False  # as above
    write("mobilenet_v2_timm", named(model, MOBILE), {"image": pictures(4, 40), "label": labels(4)}, scored)


#: Of MobileNetV3's blocks: stage, filter, channels between, out and of the gate, hard_swish, stride. Each kind is there once.
MOBILE3_BLOCKS = [
    (0, 3, 8, 8, 8, 0, 1), (1, 3, 24, 16, 0, 0, 2), (1, 3, 24, 16, 0, 0, 1), (2, 5, 32, 24, 8, 1, 2), (2, 5, 48, 24, 16, 1, 1),
]  # fmt: skip
MOBILE3_LISTS = ("block_stages", "kernel_sizes", "expanded_channels", "out_channels", "gate_channels", "hard_swish", "strides")
MOBILE3 = {
    "model_type": "mobilenet_v3", "image_size": 38, "stem_channels": 8, "top_channels": 144, "hidden_dim": 20, "batch_norm_eps": 1e-5,
    "batch_norm_momentum": 0.1, **dict(zip(MOBILE3_LISTS, map(list, zip(*MOBILE3_BLOCKS, strict=True)), strict=True)),
}  # fmt: skip


def mobilenet_v3_torchvision() -> None:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    given = [8, *(out for _, _, _, out, *_ in MOBILE3_BLOCKS)]
    setting = [
        InvertedResidualConfig(into, kernel, inner, out, narrow > 0, "HS" if swish else "RE", stride, 1, 1.0)
        for into, (_, kernel, inner, out, narrow, swish, stride) in zip(given, MOBILE3_BLOCKS, strict=False)
    ]
    model = MobileNetV3(setting, 20, num_classes=3, dropout=0.0)
    config = {**MOBILE3, "batch_norm_eps": 1e-3, "batch_norm_momentum": 0.01}
    write("mobilenet_v3_torchvision", named(model, config), {"image": pictures(4, 38), "label": labels(4)}, scored)


def mobilenet_v3_timm() -> None:
    _mobilenet_v3_timm("mobilenet_v3_timm", "", MOBILE3)


def mobilenet_v3_tf_timm() -> None:
    _mobilenet_v3_timm("mobilenet_v3_tf_timm", "same", {**MOBILE3, "same_padding": True})


def _mobilenet_v3_timm(name: str, padding: str, config: dict[str, object]) -> None:
    from functools import partial

    from timm.layers import get_act_layer
    from timm.models._efficientnet_blocks import SqueezeExcite
    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.mobilenetv3 import MobileNetV3

    said = [
        ["ds_r1_k3_s1_e1_c8_se0.25_nre"], ["ir_r1_k3_s2_e3_c16_nre", "ir_r1_k3_s1_e1.5_c16_nre"],
        ["ir_r1_k5_s2_e2_c24_se0.25", "ir_r1_k5_s1_e2_c24_se0.25"], ["cn_r1_k1_s1_c144"],
    ]  # fmt: skip
    gate = partial(SqueezeExcite, gate_layer=get_act_layer("hard_sigmoid"), force_act_layer=torch.nn.ReLU, rd_round_fn=round_channels)
    sizes = {"num_features": 20, "stem_size": 8, "act_layer": get_act_layer("hard_swish"), "pad_type": padding}
    model = MobileNetV3(decode_arch_def(said), num_classes=3, se_layer=gate, norm_layer=torch.nn.BatchNorm2d, **sizes)
    write(name, named(model, config), {"image": pictures(4, 38), "label": labels(4)}, scored)


CONVNEXT = {"model_type": "convnext", "hidden_sizes": [4, 4, 6, 8], "depths": [1, 1, 2, 1], "image_size": 32, "layer_norm_eps": 1e-6}


def convnext_timm() -> None:
    from timm.models.convnext import ConvNeXt

    model = ConvNeXt(num_classes=3, depths=(1, 1, 2, 1), dims=(4, 4, 6, 8))
    write("convnext_timm", named(model, CONVNEXT), {"image": pictures(3, 32), "label": labels(3)}, scored)


def convnext_timm_small() -> None:
    """The small ones of timm have convolutions in the place of products."""
    from timm.models.convnext import ConvNeXt

    model = ConvNeXt(num_classes=3, depths=(1, 1, 2, 1), dims=(4, 4, 6, 8), conv_mlp=True)
    write("convnext_timm_small", named(model, CONVNEXT), {"image": pictures(3, 32), "label": labels(3)}, scored)


def convnext_torchvision() -> None:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    sizes = [*CONVNEXT["hidden_sizes"], None]
    model = ConvNeXt([CNBlockConfig(sizes[i], sizes[i + 1], n) for i, n in enumerate(CONVNEXT["depths"])], num_classes=3)
    write("convnext_torchvision", named(model, CONVNEXT), {"image": pictures(3, 32), "label": labels(3)}, scored)


WHISPER = {
    "vocab_size": VOCAB, "num_mel_bins": 4, "encoder_layers": 2, "encoder_attention_heads": 2, "decoder_layers": 1,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "d_model": 8, "max_source_positions": 6,
    "max_target_positions": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1,
}  # fmt: skip


def sounds(rows: int) -> np.ndarray:
    return np.random.default_rng(4).standard_normal((rows, 4, 12)).astype(np.float32)


def whisper() -> None:
    import transformers as hf

    config = hf.WhisperConfig(**WHISPER, classifier_proj_size=6, num_labels=3)
    feeds = {"input_features": sounds(3), "label": labels(3)}
    write("whisper", shaken(hf.WhisperForAudioClassification(config)), feeds, heard)


def heard(model: torch.nn.Module, input_features: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = model(input_features=input_features, labels=label[:, 0])
    return found.logits, found.loss


def whisper_encoder() -> None:
    import transformers as hf

    model = shaken(hf.WhisperForConditionalGeneration(hf.WhisperConfig(**WHISPER)))
    write("whisper_encoder", model, {"input_features": sounds(3)}, lambda m, input_features: (m.model.encoder(input_features)[0], None))


FOLDERS = {
    "bert": bert, "bert_masked": bert_masked, "roberta": roberta, "distilbert": distilbert, "gpt2": gpt2, "gpt2_classes": gpt2_classes,
    "bert_embedding": bert_embedding, "bert_tokens": bert_tokens, "roberta_masked": roberta_masked, "distilbert_masked": distilbert_masked,
    "vit": vit, "resnet": resnet_bottleneck, "resnet_basic": resnet_basic,
    "llama": llama, "llama_classes": llama_classes, "mistral": mistral, "qwen2": qwen2,
    "llama_scaled": llama_scaled, "mistral_window": mistral_window, "qwen3": qwen3, "gemma": gemma, "phi": phi, "phi3": phi3,
    "deit": deit, "convnext": convnext, "mobilenet_v1": mobilenet_v1, "mobilenet_v2": mobilenet_v2,
    "efficientnet": efficientnet, "efficientnet_timm": efficientnet_timm, "efficientnet_torchvision": efficientnet_torchvision,
    "efficientnet_tf_timm": efficientnet_tf_timm,
    "mobilenet_v2_timm": mobilenet_v2_timm, "mobilenet_v2_torchvision": mobilenet_v2_torchvision, "convnext_timm": convnext_timm,
    "convnext_timm_small": convnext_timm_small,
    "mobilenet_v3_timm": mobilenet_v3_timm, "mobilenet_v3_tf_timm": mobilenet_v3_tf_timm,
    "mobilenet_v3_torchvision": mobilenet_v3_torchvision,
    "convnext_torchvision": convnext_torchvision, "whisper": whisper, "whisper_encoder": whisper_encoder,
}  # fmt: skip

if __name__ == "__main__":
    for wanted in sys.argv[1:] or FOLDERS:
        torch.manual_seed(3)
        FOLDERS[wanted]()
