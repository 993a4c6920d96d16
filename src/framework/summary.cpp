#include <string>

#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

std::string degree(const char* name, int n) { return n > 1 ? std::string(", ") + name + " " + std::to_string(n) : std::string(); }

std::string recompute_text(const Recompute& recompute) {
  switch (recompute.kind) {
    case Recompute::Kind::full:
      return recompute.method == Recompute::Method::block ? ", recompute of " + std::to_string(recompute.layers) + " layers"
                                                          : ", full recompute";
    case Recompute::Kind::selective:
    case Recompute::Kind::operators:
      return ", selective recompute";
    case Recompute::Kind::alternate:
      return ", recompute of every " + std::to_string(recompute.every) + " layers";
    default:
      return {};
  }
}

const char* trainer_text(PostTraining::Kind kind) {
  using Kind = PostTraining::Kind;
  switch (kind) {
    case Kind::dpo:
      return "DPO";
    case Kind::reward:
      return "reward model";
    case Kind::kto:
      return "KTO";
    case Kind::orpo:
      return "ORPO";
    case Kind::cpo:
      return "CPO";
    case Kind::grpo:
      return "GRPO";
    case Kind::rloo:
      return "RLOO";
    case Kind::gkd:
      return "GKD";
    default:
      return "SFT";
  }
}

}  // namespace

std::string summary(const Strategy& s) {
  std::string text(name_of(s.data_parallel));
  if (s.dp_replicate > 1 && s.dp_shard > 1)
    text += " × " + std::to_string(s.dp_replicate) + " × " + std::to_string(s.dp_shard);
  else if (s.dp > 1)
    text += " × " + std::to_string(s.dp);
  text += degree("tp", s.tp) + degree("pp", s.pp) + degree("vp", s.vp) + degree("cp", s.cp) + degree("ep", s.ep);
  const std::string sample = s.seq_len > 1 ? " × " + std::to_string(s.seq_len) + " tokens" : "";  // an image that no tokens are made of
  const std::string pairs = s.sequences_per_sample() == 2 ? " pairs" : "";
  text += ", micro-batch " + std::to_string(s.micro_batch) + pairs + sample + ", " + std::string(name_of(s.precision));
  if (s.low_precision != LowPrecision::none) text += " with " + std::string(name_of(s.low_precision));
  text += recompute_text(s.recompute);
  if (s.post_training) text += std::string(", ") + trainer_text(s.post_training->kind);
  if (s.lora) text += ", LoRA r " + std::to_string(s.lora->r);
  return text + " (" + s.framework + ")";
}

}  // namespace plimsoll
