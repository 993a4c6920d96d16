"""Policy gradients over generated text (GRPO's loop): generation ends by a token that nobody computed, completions are masked behind it."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

GROUP, PROMPT, EOS = 4, 16, 2
config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, eos_token_id=EOS, pad_token_id=0
)
policy, reference = LlamaForCausalLM(config).cuda(), LlamaForCausalLM(config).cuda().eval()
optimizer = torch.optim.AdamW(policy.parameters())


def log_probabilities(model, sequences):
    logits = model(sequences).logits[:, PROMPT - 1 : -1]
    return torch.distributions.Categorical(logits=logits).log_prob(sequences[:, PROMPT:])


for _ in range(5):
    prompts = torch.randint(3, 900, (2, PROMPT), device="cuda").repeat_interleave(GROUP, 0)
    with torch.no_grad():
        sequences = policy.generate(prompts, max_new_tokens=32, do_sample=True)
        kept = log_probabilities(reference, sequences)
    is_end = sequences[:, PROMPT:] == EOS
    end = torch.full((len(sequences),), is_end.size(1), device="cuda")
    end[is_end.any(1)] = is_end.int().argmax(1)[is_end.any(1)]
    mask = torch.arange(is_end.size(1), device="cuda").expand_as(is_end) <= end[:, None]
    rewards = torch.rand(len(sequences), device="cuda").view(-1, GROUP)
    advantages = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    now = log_probabilities(policy, sequences)
    loss = -((torch.exp(now - now.detach()) * advantages - 0.04 * ((kept - now).exp() - (kept - now) - 1)) * mask).sum() / mask.sum()
    assert torch.isfinite(loss), "the loss vanished"
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
