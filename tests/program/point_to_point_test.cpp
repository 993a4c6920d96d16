// All ranks of a pipeline played against each other: every send meets its receive, in order, and nobody waits for ever.
#include "program/point_to_point.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

/// One rank: its streams take the sends and receives of a step in order, and wait for events. Everything else takes no time.
class Rank {
 public:
  explicit Rank(const StepProgram& program) : program_(program), streams_(program.streams.size()) {
    const Repeated& repeated = program.repeated;
    for (std::size_t i = 0; i < program.step.size(); ++i) {
      if (i == repeated.end)
        for (std::int64_t run = 1; run < repeated.times; ++run)
          for (std::size_t j = repeated.begin; j < repeated.end; ++j) todo_.push_back(program.step[j]);
      todo_.push_back(program.step[i]);
    }
  }

  bool done() const { return todo_.empty() && idle(); }
  std::int64_t messages() const { return messages_; }

  /// Lets the host issue and every stream pass its fulfilled waits; whether anything moved.
  bool advance() {
    bool moved = false;
    while (issue()) moved = true;
    for (Stream& stream : streams_) {
      while (!stream.queue.empty() && passes(stream.queue.front())) {
        stream.finish();
        moved = true;
      }
    }
    return moved;
  }

  /// The stream whose next item is such a transfer with `peer` on this communicator; none: nullptr.
  struct Stream;
  Stream* ready(CollectiveKind kind, int peer, const std::string& communicator) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const auto& queue = streams_[i].queue;
      if (queue.empty() || queue.front().collective == nullptr || communicator_of(i) != communicator) continue;
      if (queue.front().collective->kind == kind && queue.front().collective->peer == peer) return &streams_[i];
    }
    return nullptr;
  }

  struct Item {
    const Collective* collective = nullptr;
    std::size_t stream = 0;
    std::int64_t until = 0;  ///< of a wait: finished items of `stream`
  };
  struct Stream {
    std::deque<Item> queue;
    std::int64_t issued = 0, finished = 0;
    void finish() {
      queue.pop_front();
      ++finished;
    }
  };
  std::vector<Stream>& streams() { return streams_; }
  /// "pipeline sends" and "pipeline 3" are of the communicator "pipeline".
  std::string communicator_of(std::size_t stream) const { return program_.streams[stream].substr(0, program_.streams[stream].find(' ')); }

 private:
  bool idle() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.queue.empty(); });
  }
  bool passes(const Item& item) const { return item.collective == nullptr && streams_[item.stream].finished >= item.until; }

  bool issue() {
    if (todo_.empty()) return false;
    const Instruction& next = todo_.front();
    if (next.kind == InstructionKind::synchronize && !idle()) return false;
    Stream& stream = streams_.at(next.stream);
    if (next.kind == InstructionKind::record_event) {
      events_[next.id] = {nullptr, next.stream, stream.issued};
    } else if (next.kind == InstructionKind::wait_event) {
      EXPECT_EQ(events_.count(next.id), 1U) << "an event is waited for that nobody recorded";
      const Item& event = events_[next.id];
      if (event.stream != next.stream) push(stream, event);
    } else if (next.kind == InstructionKind::collective && program_.collectives[next.id].group == Group::pipeline) {
      push(stream, {&program_.collectives[next.id], 0, 0});
      ++messages_;
    }
    todo_.pop_front();
    return true;
  }
  static void push(Stream& stream, const Item& item) {
    stream.queue.push_back(item);
    ++stream.issued;
  }

  const StepProgram& program_;
  std::deque<Instruction> todo_;
  std::vector<Stream> streams_;
  std::map<EventId, Item> events_;
  std::int64_t messages_ = 0;
};

/// Matches the heads of all streams: a transfer begins when both sides have come to it. Returns how many messages went over.
std::int64_t play(const std::vector<StepProgram>& programs, const std::string& what) {
  std::vector<Rank> ranks;
  for (const StepProgram& program : programs) ranks.emplace_back(program);
  std::int64_t sent = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : ranks) moved = rank.advance() || moved;
    for (int from = 0; from < static_cast<int>(ranks.size()); ++from) {
      Rank& sender = ranks[static_cast<std::size_t>(from)];
      for (std::size_t i = 0; i < sender.streams().size(); ++i) {
        Rank::Stream& stream = sender.streams()[i];
        if (stream.queue.empty() || stream.queue.front().collective == nullptr) continue;
        const Collective& message = *stream.queue.front().collective;
        if (message.kind != CollectiveKind::send) continue;
        EXPECT_NE(message.peer, from) << what << ": rank " << from << " sends to itself";
        Rank& receiver = ranks.at(static_cast<std::size_t>(message.peer));
        Rank::Stream* const target = receiver.ready(CollectiveKind::receive, from, sender.communicator_of(i));
        if (target == nullptr) continue;
        EXPECT_EQ(target->queue.front().collective->bytes, message.bytes) << what << ": rank " << from << " to " << message.peer;
        stream.finish();
        target->finish();
        ++sent;
        moved = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) EXPECT_TRUE(ranks[rank].done()) << what << ": rank " << rank << " waits for ever";
  return sent;
}

Model llama(int layers) {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "max_position_embeddings": 2048,
                         "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "tie_word_embeddings": false, "num_hidden_layers": )" +
                         std::to_string(layers) + "}",
                     "llama", "llama");
}

Strategy strategy_of(const Model& model, const std::string& text, int gpus) {
  return resolve(parse_strategy("{\"micro_batch\": 1, \"seq_len\": 64, \"optimizer\": \"adamw\", " + text + "}", "strategy"), model,
                 cluster_of("H100-SXM5-80GB", gpus));
}

/// Between two neighbouring stages on different ranks every micro-batch goes forward once and back once.
std::int64_t expected_messages(const Strategy& s, std::int64_t boundaries) { return 2 * boundaries * s.micro_batches; }

std::string megatron(int pp, int vp, int micro_batches) {
  return R"("framework": "megatron-core", "precision": "bf16", "data_parallel": "megatron-distopt", "layer_spec": "te", "pp": )" +
         std::to_string(pp) + ", \"vp\": " + std::to_string(vp) + ", \"micro_batches_per_step\": " + std::to_string(micro_batches);
}

TEST(PointToPoint, MegatronsRanksMeet) {
  const Model model = llama(24);
  for (const auto& [pp, vp, micro_batches] : std::vector<std::array<int, 3>>{
           {2, 1, 4}, {4, 1, 2}, {4, 1, 4}, {4, 1, 40}, {12, 1, 64}, {2, 2, 2}, {2, 3, 8}, {3, 2, 12}, {4, 2, 4}, {4, 3, 32}}) {
    const std::string text = megatron(pp, vp, micro_batches);
    const Strategy strategy = strategy_of(model, text, pp > 8 ? 2 * pp : pp);  // whole nodes
    MegatronPipeline pipeline(on_h100(model, strategy));
    std::vector<StepProgram> programs;
    for (int rank = 0; rank < pp; ++rank) programs.push_back(pipeline.rank(rank));
    EXPECT_EQ(play(programs, text), expected_messages(strategy, pp * vp - 1)) << text;
  }
}

// Before overlap_p2p_comm: one group for both directions of a turn.
TEST(PointToPoint, RanksOfOldMegatronsMeet) {
  const Model model = llama(24);
  for (const auto& [pp, vp, micro_batches] :
       std::vector<std::array<int, 3>>{{4, 1, 12}, {3, 2, 3}, {3, 2, 12}, {4, 2, 4}, {4, 2, 8}, {4, 3, 32}, {8, 3, 16}}) {
    const std::string text = R"("framework": "megatron-lm", "framework_version": "2022-05", "precision": "bf16", "data_parallel": "ddp", "pp": )" +
                             std::to_string(pp) + ", \"vp\": " + std::to_string(vp) +
                             ", \"micro_batches_per_step\": " + std::to_string(micro_batches);
    const Strategy strategy = strategy_of(model, text, pp);
    MegatronPipeline pipeline(on_h100(model, strategy));
    std::vector<StepProgram> programs;
    for (int rank = 0; rank < pp; ++rank) programs.push_back(pipeline.rank(rank));
    EXPECT_EQ(play(programs, text), expected_messages(strategy, pp * vp - 1)) << text;
  }
}

TEST(PointToPoint, TorchTitansRanksMeet) {
  const Model model = llama(22);
  for (const char* more : {R"("pp": 2, "pp_schedule": "1f1b", "global_batch": 2)", R"("pp": 8, "pp_schedule": "1f1b", "global_batch": 12)",
                           R"("pp": 8, "pp_schedule": "1f1b", "global_batch": 64)", R"("pp": 4, "pp_schedule": "gpipe", "global_batch": 24)",
                           R"("pp": 2, "vp": 2, "pp_schedule": "interleaved-1f1b", "global_batch": 8)",
                           R"("pp": 4, "vp": 2, "pp_schedule": "interleaved-1f1b", "global_batch": 32)",
                           R"("pp": 4, "vp": 4, "pp_schedule": "interleaved-1f1b", "global_batch": 32)",
                           R"("pp": 4, "vp": 2, "pp_schedule": "interleaved-zero-bubble", "global_batch": 32)",
                           R"("pp": 4, "vp": 2, "pp_schedule": "zbv", "global_batch": 32)",
                           R"("pp": 4, "vp": 2, "pp_schedule": "dualpipev", "global_batch": 32)"}) {
    const std::string text =
        R"("framework": "torchtitan", "framework_version": "0.3.0", "torch": "2.15.0", "data_parallel": "fsdp", "loss": "chunked-ce", "recompute": "none", )" +
        std::string(more);
    const int ranks = std::stoi(std::string(more).substr(6));
    const Strategy strategy = strategy_of(model, text, ranks);
    TitanPipeline pipeline(on_h100(model, strategy));
    std::vector<StepProgram> programs;
    for (int rank = 0; rank < ranks; ++rank) programs.push_back(pipeline.rank(rank));
    const bool folded = strategy.pp_schedule == "zbv" || strategy.pp_schedule == "dualpipev";  // the middle stages share a rank
    EXPECT_EQ(play(programs, more), expected_messages(strategy, strategy.pp * strategy.vp - (folded ? 2 : 1))) << more;
  }
}

TEST(PointToPoint, NanotronsRanksMeet) {
  const Model model = llama(8);
  for (const int micro_batches : {3, 4, 16}) {
    const std::string text =
        R"("framework": "nanotron", "precision": "bf16", "pp": 4, "dp": 1, "micro_batches_per_step": )" + std::to_string(micro_batches);
    const Strategy strategy = strategy_of(model, text, 4);
    std::vector<StepProgram> programs;
    for (int rank = 0; rank < 4; ++rank) programs.push_back(lower_nanotron(on_h100(model, strategy), {rank}));
    EXPECT_EQ(play(programs, text), expected_messages(strategy, 3)) << text;
  }
}

TEST(PointToPoint, MegatronDeepSpeedsRanksMeet) {
  const Model model = parse_model(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1024, "n_positions": 256,
                                      "n_embd": 512, "n_head": 8, "activation_function": "gelu", "n_layer": 8})",
                                  "gpt", "gpt");
  for (const auto& [precision, micro_batches] : {std::pair{"bf16", 4}, {"bf16", 24}, {"fp16", 24}}) {
    const std::string text = R"("framework": "megatron-deepspeed", "data_parallel": "zero1", "attention": "unfused", "pp": 4, "precision": ")" +
                             std::string(precision) + R"(", "micro_batches_per_step": )" + std::to_string(micro_batches);
    const Strategy strategy = strategy_of(model, text, 4);
    std::vector<StepProgram> programs;
    for (int rank = 0; rank < 4; ++rank) programs.push_back(lower_megatron_deepspeed(on_h100(model, strategy), {rank}));
    EXPECT_EQ(play(programs, text), expected_messages(strategy, 3)) << text;
  }
}

/// A rank of one send and one receive, both in one group or in two.
StepProgram exchanging(int rank, int peer, bool grouped) {
  Tape tape{h100()};
  BatchedTransfers transfers(tape, 2);
  tape.record_into(Tape::Part::step);
  const Message message{64, DType::bf16};
  transfers.begin();
  transfers.send(peer, message);
  if (!grouped) transfers.end(true);
  transfers.begin();
  transfers.receive(peer, message);
  transfers.end(true);
  EXPECT_EQ(rank + peer, 1);
  return tape.take();
}

TEST(PointToPoint, TransfersOfAGroupRunSideBySideAndGroupsInTurn) {
  EXPECT_EQ(play({exchanging(0, 1, true), exchanging(1, 0, true)}, "one group"), 2);
  // Two ranks that both send first and wait for it never meet: the player of this test sees it.
  std::vector<StepProgram> programs{exchanging(0, 1, false), exchanging(1, 0, false)};
  Rank first(programs[0]), second(programs[1]);
  while (first.advance() || second.advance()) {
  }
  EXPECT_NE(first.ready(CollectiveKind::send, 1, "pipeline"), nullptr);
  EXPECT_EQ(first.ready(CollectiveKind::receive, 1, "pipeline"), nullptr) << "the receive's group begins behind the send's";
}

// Pairs have streams of their own: what is sent to one neighbour does not wait for what comes from the other, and who waits for sends waits for
// no receive behind them.
TEST(PointToPoint, PairsDoNotWaitForEachOther) {
  Tape tape{h100()};
  PairedTransfers transfers(tape, 4);
  tape.record_into(Tape::Part::step);
  const Message message{64, DType::bf16};
  const StreamId from_before = transfers.issue(CollectiveKind::receive, 3, message), ahead = transfers.issue(CollectiveKind::send, 1, message);
  EXPECT_NE(from_before, ahead);
  EXPECT_EQ(transfers.issue(CollectiveKind::receive, 1, message), ahead);
  transfers.await_sends();
  const StepProgram program = tape.take();
  std::vector<InstructionKind> on_pair;
  std::uint32_t awaited = 0, recorded = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::collective && instruction.stream == ahead) on_pair.push_back(instruction.kind);
    if (instruction.kind == InstructionKind::record_event && instruction.stream == ahead && on_pair.size() == 1) recorded = instruction.id;
    if (instruction.kind == InstructionKind::wait_event && instruction.stream == kComputeStream) awaited = instruction.id;
  }
  EXPECT_EQ(on_pair.size(), 2u);
  EXPECT_EQ(awaited, recorded) << "the event behind the send, in front of the receive";
}

}  // namespace
}  // namespace plimsoll::program
