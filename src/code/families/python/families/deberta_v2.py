# DeBERTa v2 and v3: contents are scored against relative positions and back, beside each other.
import torch
from families.common import Activation, AnsweringOutput, ModelOutput, Network, answers, labelled
from plimsoll import activate, ask_all, loss_begins, nonzero_of_all
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


class Relative:
    """What the configuration says of relative positions."""

    def __init__(self, config):
        self.used = getattr(config, "relative_attention", False)
        self.buckets = getattr(config, "position_buckets", -1)
        self.most = getattr(config, "max_relative_positions", -1)
        if self.most < 1:
            self.most = config.max_position_embeddings
        self.span = self.buckets if self.buckets > 0 else self.most
        self.shared = getattr(config, "share_att_key", False)
        kinds = getattr(config, "pos_att_type", None) or []
        if isinstance(kinds, str):
            kinds = [kind.strip() for kind in kinds.lower().split("|")]
        self.by_position = "c2p" in kinds
        self.by_content = "p2c" in kinds
        self.normed = "layer_norm" in (getattr(config, "norm_rel_ebd", "none") or "none").lower()
        self.factor = 1 + (1 if self.by_position else 0) + (1 if self.by_content else 0)


def log_buckets(distances, buckets, most):
    sign = torch.sign(distances)
    middle = buckets // 2
    far = torch.where((distances < middle) & (distances > -middle), torch.tensor(middle - 1).type_as(distances), torch.abs(distances))
    logarithm = torch.ceil(torch.log(far / middle) / torch.log(torch.tensor((most - 1) / middle)) * (middle - 1)) + middle
    return torch.where(far <= middle, distances.type_as(logarithm), logarithm * sign)


def distances_of(hidden, relative):
    queries = torch.arange(hidden.size(-2), dtype=torch.long, device=hidden.device)
    keys = torch.arange(hidden.size(-2), dtype=torch.long, device=hidden.device)
    distances = queries[:, None] - keys[None, :]
    if relative.buckets > 0 and relative.most > 0:
        distances = log_buckets(distances, relative.buckets, relative.most)
    distances = distances.to(torch.long)
    distances = distances[:hidden.size(-2), :]
    return distances.unsqueeze(0)


def root_of(x, factor):
    return torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * factor)


class DisentangledSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.relative = Relative(config)
        self.query_proj = nn.Linear(width, width)
        self.key_proj = nn.Linear(width, width)
        self.value_proj = nn.Linear(width, width)
        if self.relative.used:
            self.pos_dropout = nn.Dropout(config.hidden_dropout)
            if not self.relative.shared:
                if self.relative.by_position:
                    self.pos_key_proj = nn.Linear(width, width)
                if self.relative.by_content:
                    self.pos_query_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.attention_dropout)

    def split(self, x):
        x = x.view(x.size()[:-1] + (self.heads, -1))
        return x.permute(0, 2, 1, 3).contiguous().view(-1, x.size(1), x.size(-1))

    def forward(self, hidden, mask, distances, table):
        query = self.split(self.query_proj(hidden))
        key = self.split(self.key_proj(hidden))
        value = self.split(self.value_proj(hidden))
        bias = None
        scale = root_of(query, self.relative.factor)
        scores = torch.bmm(query, key.transpose(-1, -2) / scale.to(dtype=query.dtype))
        if self.relative.used:
            table = self.pos_dropout(table)
            bias = self.position_scores(query, key, distances, table)
        if bias is not None:
            scores = scores + bias
        scores = scores.view(-1, self.heads, scores.size(-2), scores.size(-1))
        mask = mask.bool()
        scores = scores.masked_fill(~(mask), torch.finfo(query.dtype).min)
        weights = F.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        context = torch.bmm(weights.view(-1, weights.size(-2), weights.size(-1)), value)
        context = context.view(-1, self.heads, context.size(-2), context.size(-1)).permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (-1,))
        return (context, None)

    def position_scores(self, query, key, distances, table):
        relative = self.relative
        distances = distances.unsqueeze(1)
        distances = distances.to(device=query.device, dtype=torch.long)
        table = table[0:relative.span * 2, :].unsqueeze(0)
        samples = query.size(0) // self.heads
        if relative.shared:
            position_query = self.split(self.query_proj(table)).repeat(samples, 1, 1)
            position_key = self.split(self.key_proj(table)).repeat(samples, 1, 1)
        else:
            if relative.by_position:
                position_key = self.split(self.pos_key_proj(table)).repeat(samples, 1, 1)
            if relative.by_content:
                position_query = self.split(self.pos_query_proj(table)).repeat(samples, 1, 1)
        score = 0
        if relative.by_position:
            scale = root_of(position_key, relative.factor)
            by_position = torch.bmm(query, position_key.transpose(-1, -2))
            places = torch.clamp(distances + relative.span, 0, relative.span * 2 - 1)
            by_position = torch.gather(by_position, dim=-1,
                                       index=places.squeeze(0).expand([query.size(0), query.size(1), distances.size(-1)]))
            score += by_position / scale.to(dtype=by_position.dtype)
        if relative.by_content:
            scale = root_of(position_query, relative.factor)
            back = torch.clamp(-distances + relative.span, 0, relative.span * 2 - 1)
            by_content = torch.bmm(key, position_query.transpose(-1, -2))
            by_content = torch.gather(by_content, dim=-1,
                                      index=back.squeeze(0).expand([query.size(0), key.size(-2), key.size(-2)])).transpose(-1, -2)
            score += by_content / scale.to(dtype=by_content.dtype)
        return score


class DebertaV2Branch(nn.Module):
    """A projection behind a branch, added to what went into it and normed."""

    def __init__(self, config, width):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, residual):
        hidden = self.dense(hidden)
        hidden = self.dropout(hidden)
        hidden = self.LayerNorm(hidden + residual)
        return hidden


class DebertaV2Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self = DisentangledSelfAttention(config)
        self.output = DebertaV2Branch(config, config.hidden_size)

    def forward(self, hidden, mask, distances, table):
        attended, weights = self.self(hidden, mask, distances=distances, table=table)
        attended = self.output(attended, hidden)
        return (attended, None)


class DebertaV2Intermediate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = Activation(config.hidden_act)

    def forward(self, hidden):
        hidden = self.dense(hidden)
        hidden = self.intermediate_act_fn(hidden)
        return hidden


class DebertaV2Layer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.attention = DebertaV2Attention(config)
        self.intermediate = DebertaV2Intermediate(config)
        self.output = DebertaV2Branch(config, config.intermediate_size)

    def forward(self, hidden, mask, distances, table):
        attended, weights = self.attention(hidden, mask, distances=distances, table=table)
        inner = self.intermediate(attended)
        output = self.output(inner, attended)
        return (output, None)


class DebertaV2Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = getattr(config, "embedding_size", None) or config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = None
        if getattr(config, "position_biased_input", True):
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        kinds = getattr(config, "type_vocab_size", 0)
        self.token_type_embeddings = nn.Embedding(kinds, width) if kinds > 0 else None
        self.embed_proj = nn.Linear(width, config.hidden_size, bias=False) if width != config.hidden_size else None
        self.LayerNorm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.position_ids = nn.Buffer(torch.zeros((1, config.max_position_embeddings), dtype=torch.int64), persistent=False)

    def forward(self, input_ids, kinds, real):
        positions = self.position_ids[:, :input_ids.size()[1]]
        words = self.word_embeddings(input_ids)
        if self.position_embeddings is not None:
            places = self.position_embeddings(positions.long())
        else:
            places = torch.zeros_like(words)
        embeddings = words
        if self.position_embeddings is not None:
            embeddings = embeddings + places
        if self.token_type_embeddings is not None:
            of_kinds = self.token_type_embeddings(kinds)
            embeddings = embeddings + of_kinds
        if self.embed_proj is not None:
            embeddings = self.embed_proj(embeddings)
        embeddings = self.LayerNorm(embeddings)
        real = real.unsqueeze(2)
        real = real.to(embeddings.dtype)
        embeddings = embeddings * real
        embeddings = self.dropout(embeddings)
        return embeddings


class DebertaV2Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.relative = Relative(config)
        self.layer = nn.ModuleList([DebertaV2Layer(config) for _ in range(config.num_hidden_layers)])
        if self.relative.used:
            self.rel_embeddings = nn.Embedding(self.relative.span * 2, config.hidden_size)
            if self.relative.normed:
                self.LayerNorm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden, real):
        mask = real.unsqueeze(1).unsqueeze(2)
        mask = mask * mask.squeeze(-2).unsqueeze(-1)
        distances = distances_of(hidden, self.relative) if self.relative.used else None
        states = (hidden,)
        table = self.rel_embeddings.weight if self.relative.used else None
        if self.relative.used and self.relative.normed:
            table = self.LayerNorm(table)
        for layer in self.layer:
            hidden, weights = layer(hidden, mask, distances=distances, table=table)
            states = states + (hidden,)
        return states


class DebertaV2Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = DebertaV2Embeddings(config)
        self.encoder = DebertaV2Encoder(config)

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def forward(self, input_ids):
        ask_all(input_ids[:, torch.tensor([-1, 0])] == 0)  # whether the first or the last token is padding
        real = torch.ones(input_ids.size(), device=input_ids.device)
        kinds = torch.zeros(input_ids.size(), dtype=torch.long, device=input_ids.device)
        embeddings = self.embeddings(input_ids=input_ids, kinds=kinds, real=real)
        states = self.encoder(embeddings, real)
        return states[-1]


class DebertaV2Network(Network):
    attentions = ("eager",)
    body_class, base = DebertaV2Model, "deberta"


class PredictionHeadTransform(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = getattr(config, "embedding_size", None) or config.hidden_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.transform_act_fn = Activation(config.hidden_act)
        self.LayerNorm = nn.LayerNorm(width)

    def forward(self, hidden):
        hidden = self.dense(hidden)
        hidden = self.transform_act_fn(hidden)
        hidden = self.LayerNorm(hidden)
        return hidden


class PredictionHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transform = PredictionHeadTransform(config)
        self.decoder = nn.Linear(getattr(config, "embedding_size", None) or config.hidden_size, config.vocab_size)
        self.bias = self.decoder.bias

    def forward(self, hidden):
        hidden = self.transform(hidden)
        hidden = self.decoder(hidden)
        return hidden


class MaskedHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.predictions = PredictionHead(config)

    def forward(self, hidden):
        return self.predictions(hidden)


class DebertaV2ForMaskedLM(DebertaV2Network):
    def __init__(self, config):
        super().__init__(config)
        self.cls = MaskedHead(config)
        self.tie(self.cls.predictions.decoder)

    def forward(self, input_ids, labels):
        hidden = self.deberta(input_ids)
        logits = self.cls(hidden)
        return labelled(logits, labels)


class ContextPooler(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(getattr(config, "pooler_dropout", 0.0))
        self.act = getattr(config, "pooler_hidden_act", "gelu")

    def forward(self, hidden):
        first = hidden[:, 0]
        first = self.dropout(first)
        pooled = self.dense(first)
        pooled = activate(self.act, pooled)
        return pooled


def dropout_of_head(config):
    rate = getattr(config, "cls_dropout", None)
    return nn.Dropout(config.embedding_dropout if rate is None else rate)


class DebertaV2ForSequenceClassification(DebertaV2Network):
    def __init__(self, config):
        super().__init__(config)
        self.pooler = ContextPooler(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.dropout = dropout_of_head(config)

    def forward(self, input_ids, labels):
        hidden = self.deberta(input_ids)
        pooled = self.pooler(hidden)
        pooled = self.dropout(pooled)
        logits = self.classifier(pooled)
        if logits.size(-1) == 1:
            return labelled(logits, labels)
        loss_begins()
        places = nonzero_of_all(labels >= 0)  # samples without a label are left out: none is
        labels = labels.long()
        kept = torch.gather(logits, 0, places.expand(places.size(0), logits.size(1)))
        labels = torch.gather(labels, 0, places.view(-1))
        loss = F.cross_entropy(kept.view(-1, self.config.num_labels).float(), labels.view(-1))
        return ModelOutput(loss, logits)


class DebertaV2ForTokenClassification(DebertaV2Network):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, labels):
        hidden = self.deberta(input_ids)
        hidden = self.dropout(hidden)
        logits = self.classifier(hidden)
        return labelled(logits, labels)


class DebertaV2ForQuestionAnswering(DebertaV2Network):
    def __init__(self, config):
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids, start_positions, end_positions):
        hidden = self.deberta(input_ids)
        logits = self.qa_outputs(hidden)
        return answers(logits, start_positions, end_positions)
