# DistilBERT: BERT without segments and pooler, under names of its own.
import torch
from families.common import Activation, Network, answers, bidirectional_mask, labelled
from plimsoll import attend
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.position_ids = nn.Buffer(torch.zeros((1, config.max_position_embeddings), dtype=torch.int64), persistent=False)

    def forward(self, input_ids):
        words = self.word_embeddings(input_ids)
        positions = self.position_ids[:, :words.size(1)]
        places = self.position_embeddings(positions)
        embeddings = words + places
        embeddings = self.LayerNorm(embeddings)
        embeddings = self.dropout(embeddings)
        return embeddings


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.head_dim = width // config.num_attention_heads
        self.rate = config.attention_dropout
        self.q_lin = nn.Linear(width, width)
        self.k_lin = nn.Linear(width, width)
        self.v_lin = nn.Linear(width, width)
        self.out_lin = nn.Linear(width, width)

    def forward(self, hidden, mask):
        shape = hidden.shape[:-1]
        heads = (*shape, -1, self.head_dim)
        query = self.q_lin(hidden).view(*heads).transpose(1, 2)
        key = self.k_lin(hidden).view(*heads).transpose(1, 2)
        value = self.v_lin(hidden).view(*heads).transpose(1, 2)
        output, weights = attend(query, key, value, mask, causal=False, dropout=self.rate, softmax_in_fp32=False)
        output = output.reshape(*shape, -1).contiguous()
        output = self.out_lin(output)
        return output, weights


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.lin1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.lin2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.activation = Activation(config.hidden_act)

    def forward(self, hidden):
        hidden = self.lin1(hidden)
        hidden = self.activation(hidden)
        hidden = self.lin2(hidden)
        hidden = self.dropout(hidden)
        return hidden


class TransformerBlock(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.sa_layer_norm = nn.LayerNorm(config.hidden_size)
        self.ffn = FeedForward(config)
        self.output_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden, mask):
        attended, weights = self.attention(hidden, mask=mask)
        attended = self.sa_layer_norm(attended + hidden)
        fed = self.ffn(attended)
        fed = self.output_layer_norm(fed + attended)
        return fed


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList([TransformerBlock(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden, mask):
        for layer in self.layer:
            hidden = layer(hidden, mask)
        return hidden


class DistilBertModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.transformer = Transformer(config)

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def forward(self, input_ids):
        embeddings = self.embeddings(input_ids)
        mask = bidirectional_mask(self.config, embeddings)
        return self.transformer(hidden=embeddings, mask=mask)


class DistilBertNetwork(Network):
    body_class, base = DistilBertModel, "distilbert"


class DistilBertForMaskedLM(DistilBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.activation = Activation(config.hidden_act)
        self.vocab_transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.vocab_layer_norm = nn.LayerNorm(config.hidden_size)
        self.vocab_projector = nn.Linear(config.hidden_size, config.vocab_size)
        self.tie(self.vocab_projector)

    def forward(self, input_ids, labels):
        hidden = self.distilbert(input_ids=input_ids)
        logits = self.vocab_transform(hidden)
        logits = self.activation(logits)
        logits = self.vocab_layer_norm(logits)
        logits = self.vocab_projector(logits)
        return labelled(logits, labels)


class DistilBertForSequenceClassification(DistilBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.pre_classifier = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.dropout = nn.Dropout(0.2)

    def forward(self, input_ids, labels):
        hidden = self.distilbert(input_ids=input_ids)
        pooled = hidden[:, 0]
        pooled = self.pre_classifier(pooled)
        pooled = nn.ReLU()(pooled)
        pooled = self.dropout(pooled)
        logits = self.classifier(pooled)
        return labelled(logits, labels)


class DistilBertForTokenClassification(DistilBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, labels):
        hidden = self.distilbert(input_ids)
        hidden = self.dropout(hidden)
        logits = self.classifier(hidden)
        return labelled(logits, labels)


class DistilBertForQuestionAnswering(DistilBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.dropout = nn.Dropout(0.1)

    def forward(self, input_ids, start_positions, end_positions):
        hidden = self.distilbert(input_ids=input_ids)
        hidden = self.dropout(hidden)
        logits = self.qa_outputs(hidden)
        return answers(logits, start_positions, end_positions)
