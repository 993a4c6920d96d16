#include "program/frameworks/megatron/schedule.hpp"

#include <algorithm>
#include <deque>

#include "plimsoll/error.hpp"
#include "program/frameworks/megatron/schedule_passes.hpp"
#include "program/frameworks/megatron/split_schedule.hpp"
#include "program/frameworks/megatron/stage_transfers.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// The schedules of Megatron-core itself.
class Step : MegatronPasses {
 public:
  Step(MegatronRank& rank, const Tensor& scale) : MegatronPasses(rank, scale), p2p_(rank) {}

  void run() {
    begin();
    if (defers()) rank_.chunks.back()->defer_weight_gradients(rank_.deferred, p2p_.hidden_state());
    if (rank_.stages == 1) {
      without_pipeline();
    } else if (rank_.chunks.size() == 1) {
      one_forward_one_backward();
    } else {
      rank_.batched ? interleaved_in_turn() : interleaved();
    }
    if (rank_.left_out > 0) rank_.repeated.times += rank_.chunks.size() > 1 ? rank_.left_out / rank_.stages : rank_.left_out;
    finalize();
  }

 private:
  bool first_rank() const { return rank_.rank == 0; }
  bool last_rank() const { return rank_.rank == rank_.stages - 1; }

  // ---- schedules ------------------------------------------------------------------------------------------------------------


  /// Called before turn `turn` of `turns` of the steady state, `period` of which run the same passes as those left out.
  void before_turn(std::int64_t turn, std::int64_t turns, std::int64_t period) {
    const std::int64_t first = (turns - period) / 2;
    if (turn == first) rank_.repeated.begin = tape_.recorded();
    if (turn == first + period) rank_.repeated.end = tape_.recorded();
  }

  /// Where exchanges overlap (combined_1f1b_schedule_for_no_pipelining), a forward pass runs beside the backward pass of the micro-batch
  /// before: the first one and the last backward pass have none beside them.
  void without_pipeline() {
    const Tensor total_tokens = zeros(tape_, {}, DType::int32);
    Passed passed;
    for (std::int64_t i = 0; i < rank_.micro_batches; ++i) {
      before_turn(i, rank_.micro_batches, 1);
      if (i + 1 == rank_.micro_batches) synchronize(0);
      rank_.runtime.passes_alone(i == 0);
      passed = forward_step(0, {});
      Tensor output = passed.output;
      rank_.runtime.passes_alone(i + 1 == rank_.micro_batches);
      backward_step(0, {}, output, {});
    }
    drop_reports();
  }

  /// forward_backward_pipelining_without_interleaving: warm-up, one forward and one backward in turn, cool-down.
  void one_forward_one_backward() {
    const Tensor total_tokens = zeros(tape_, {}, DType::int32);
    const std::int64_t warm_up = std::min(rank_.warm_up, rank_.micro_batches);
    const std::int64_t steady = rank_.micro_batches - warm_up;
    std::deque<Tensor> inputs, outputs;
    Passed passed;
    Tensor input, output, gradient, input_gradient;
    for (std::int64_t i = 0; i < warm_up; ++i) {
      input = p2p_.receive(p2p_.before(), !first_rank());
      passed = forward_step(0, input);
      output = passed.output;
      p2p_.send(p2p_.behind(), output);
      p2p_.end_group();
      inputs.push_back(input);
      outputs.push_back(output);
      deallocate(output);
    }
    if (steady > 0) input = p2p_.receive(p2p_.before(), !first_rank());
    for (std::int64_t i = 0; i < steady; ++i) {
      before_turn(i, steady, 1);
      passed = forward_step(0, input);
      output = std::move(passed.output);
      if (!last_rank()) p2p_.send(p2p_.behind(), output);
      gradient = p2p_.receive(p2p_.behind(), !last_rank());
      inputs.push_back(input);
      outputs.push_back(output);
      deallocate(output);
      input = inputs.front();
      output = outputs.front();
      inputs.pop_front();
      outputs.pop_front();
      if (warm_up == 0 && i + 1 == steady) synchronize(0);
      input_gradient = backward_step(0, input, output, gradient);
      p2p_.send(p2p_.before(), input_gradient);
      input = i + 1 == steady ? Tensor() : p2p_.receive(p2p_.before(), !first_rank());
    }
    passed.output.reset();
    for (std::int64_t i = 0; i < warm_up; ++i) {
      if (i + 1 == warm_up) synchronize(0);
      p2p_.end_group();
      input = inputs.front();
      output = outputs.front();
      inputs.pop_front();
      outputs.pop_front();
      gradient = p2p_.receive(p2p_.behind(), !last_rank());
      input_gradient = backward_step(0, input, output, gradient);
      p2p_.send(p2p_.before(), input_gradient);
    }
    p2p_.end_group();
    drop_reports();
  }

  // ---- interleaved ------------------------------------------------------------------------------------------------------------

  std::int64_t chunks() const { return static_cast<std::int64_t>(rank_.chunks.size()); }
  std::int64_t passes() const { return rank_.micro_batches * chunks(); }

  /// get_model_chunk_id over get_schedule_table with groups of as many micro-batches as stages.
  std::int64_t chunk_of(std::int64_t pass, bool forward) const {
    const std::int64_t at_all = pass % passes(), group = rank_.stages * chunks(), at = at_all / group;
    const std::int64_t size = std::min(rank_.stages, rank_.micro_batches - at * rank_.stages);
    const std::int64_t chunk = (at_all - at * group) / size;
    return forward ? chunk : chunks() - 1 - chunk;
  }

  /// Passes forward before the first comes back.
  std::int64_t warm_up_passes() const {
    return std::min(passes(), 2 * (rank_.stages - rank_.rank - 1) + (chunks() - 1) * rank_.stages);
  }

  struct Next {
    bool receives;
    std::size_t chunk;
  };
  /// recv_tensor_from_previous_stage: whether the neighbour sends now, and for which chunk.
  Next next_of(std::int64_t pass, bool forward) const {
    const bool leading = forward ? first_rank() : last_rank();
    if (!leading) return {true, static_cast<std::size_t>(pass + 1 < passes() ? chunk_of(pass + 1, forward) : 0)};
    const bool early = pass < rank_.stages - 1;
    const std::int64_t chunk = early ? chunk_of(pass + 1, forward) : chunk_of(pass - (rank_.stages - 1), forward);
    const std::int64_t last = forward ? chunks() - 1 : 0, next = forward ? chunk + 1 : chunk - 1;
    return {!early && chunk != last, static_cast<std::size_t>(std::clamp<std::int64_t>(next, 0, chunks() - 1))};
  }

  struct Queues {
    std::deque<Tensor> inputs, outputs, gradients;
  };

  /// param_sync_func: the weights of the first two chunks.
  void start_gathering() {
    if (!rank_.aligns_gathers) return;
    rank_.wrapped[0]->start_param_sync();
    rank_.wrapped[1]->start_param_sync();
  }

  /// forward_step_helper_preprocess: those of the chunk behind the next, when the last stage begins with a chunk's first micro-batch.
  void gather_ahead(std::int64_t pass) {
    const std::int64_t there = pass + rank_.rank;
    if (!rank_.aligns_gathers || there >= passes()) return;
    const std::int64_t group = rank_.stages * chunks(), chunk = chunk_of(there, true);
    if (there >= group || there % rank_.stages != 0) return;  // no chunk's first micro-batch
    if (chunk + 1 > 1 && chunk + 1 < chunks()) rank_.wrapped[static_cast<std::size_t>(chunk + 1)]->start_param_sync();
  }

  Tensor forward_pass(std::vector<Queues>& queues, std::int64_t pass) {
    gather_ahead(pass);
    const auto chunk = static_cast<std::size_t>(chunk_of(pass, true));
    Queues& queue = queues[chunk];
    if (rank_.chunks[chunk]->plan().embedding && queue.inputs.size() == queue.outputs.size()) queue.inputs.emplace_back();
    const Tensor input = queue.inputs[queue.outputs.size()];
    const Passed passed = forward_step(chunk, input);
    queue.outputs.push_back(passed.output);
    return rank_.chunks[chunk]->plan().head ? Tensor() : passed.output;
  }

  Tensor backward_pass(std::vector<Queues>& queues, std::vector<std::int64_t>& done, std::int64_t pass) {
    const auto chunk = static_cast<std::size_t>(chunk_of(pass, false));
    Queues& queue = queues[chunk];
    if (++done[chunk] == rank_.micro_batches) synchronize(chunk);
    if (rank_.chunks[chunk]->plan().head && queue.gradients.empty()) queue.gradients.emplace_back();
    Tensor input = queue.inputs.front(), output = queue.outputs.front(), gradient = queue.gradients.front();
    queue.inputs.pop_front();
    queue.outputs.pop_front();
    queue.gradients.pop_front();
    Tensor input_gradient;
    {
      Tensor differentiated = output;
      input_gradient = backward_step(chunk, input, differentiated, gradient);
    }
    if (rank_.chunks[chunk]->plan().embedding) input_gradient.reset();
    gradient.reset();
    output.reset();
    input.reset();
    return input_gradient;
  }

  /// forward_backward_pipelining_with_interleaving with overlap_p2p_comm, without overlap_p2p_comm_warmup_flush.
  void interleaved() {
    const std::int64_t p = rank_.stages, m = rank_.micro_batches;
    if (m % p != 0) refuse("Megatron needs a number of micro-batches that the pipeline stages divide for its interleaved schedule", "pp");
    const Tensor total_tokens = zeros(tape_, {}, DType::int32);
    Interleaved all(rank_.chunks.size());
    const std::int64_t warm_up = warm_up_passes(), steady = passes() - warm_up;
    start_gathering();
    all.queues[0].inputs.push_back(
        p2p_.exchange_and_wait(StageTransfers::kToNext, {}, StageTransfers::kFromPrevious, !rank_.chunks[0]->plan().embedding));
    for (std::int64_t k = 0; k < warm_up; ++k) warm_up_turn(all, k, warm_up);
    for (std::int64_t k = 0; k < steady; ++k) steady_turn(all, k, warm_up);
    deallocate(all.output);
    p2p_.await(StageTransfers::kFromNext);
    if (steady == 0)
      all.queues.back().gradients.push_back(
          p2p_.exchange_and_wait(StageTransfers::kToPrevious, {}, StageTransfers::kFromNext, !rank_.chunks.back()->plan().head));
    for (std::int64_t k = steady; k < passes(); ++k) cool_down_turn(all, k);
    drop_reports();
  }

  /// Variables of the interleaved schedule.
  struct Interleaved {
    explicit Interleaved(std::size_t chunks) : queues(chunks), done(chunks) {}

    std::vector<Queues> queues;
    std::vector<std::int64_t> done;  ///< by chunk: passes back
    Tensor output, input, input_gradient, received_gradient, forward_buffer, backward_buffer;
    // The last overlapped call's handles live to the end, and each holds its tensor, waited for or not.
    Tensor awaited;  ///< what it received
    Tensor sent;     ///< what it sent back
  };

  void warm_up_turn(Interleaved& all, std::int64_t k, std::int64_t warm_up) {
    Next next = next_of(k, true);
    if (k == passes() - 1) next.receives = false;
    all.output = forward_pass(all.queues, k);
    all.input = p2p_.exchange_and_wait(StageTransfers::kToNext, all.output, StageTransfers::kFromPrevious, next.receives);
    if (next.receives) all.queues[next.chunk].inputs.push_back(all.input);
    deallocate(all.output);
    if (k != warm_up - 1 || warm_up == passes()) return;
    all.backward_buffer = p2p_.exchange(StageTransfers::kToPrevious, {}, StageTransfers::kFromNext, !last_rank());
    if (!last_rank()) all.queues.back().gradients.push_back(all.backward_buffer);
  }

  void steady_turn(Interleaved& all, std::int64_t k, std::int64_t warm_up) {
    const std::int64_t steady = passes() - warm_up;
    before_turn(k, steady, rank_.stages * chunks());
    p2p_.await(StageTransfers::kFromPrevious);
    deallocate(all.output);
    Tensor forward_output = forward_pass(all.queues, k + warm_up);
    Next next = next_of(k + warm_up, true);
    if (k == steady - 1) next.receives = false;
    all.forward_buffer = p2p_.exchange(StageTransfers::kToNext, forward_output, StageTransfers::kFromPrevious, next.receives);
    if (next.receives) all.queues[next.chunk].inputs.push_back(std::move(all.forward_buffer));
    p2p_.await(StageTransfers::kFromNext);
    Tensor gradient = backward_pass(all.queues, all.done, k);
    const Next back = next_of(k, false);
    all.backward_buffer = p2p_.exchange(StageTransfers::kToPrevious, gradient, StageTransfers::kFromNext, back.receives);
    if (k == steady - 1) {
      if (back.receives) all.awaited = all.backward_buffer;
      all.sent = gradient;
    }
    if (back.receives) all.queues[back.chunk].gradients.push_back(std::move(all.backward_buffer));
    all.output = std::move(forward_output);
    all.input_gradient = std::move(gradient);
  }

  void cool_down_turn(Interleaved& all, std::int64_t k) {
    Next next = next_of(k, false);
    if (k == passes() - 1) next.receives = false;
    all.input_gradient = backward_pass(all.queues, all.done, k);
    all.received_gradient =
        p2p_.exchange_and_wait(StageTransfers::kToPrevious, all.input_gradient, StageTransfers::kFromNext, next.receives);
    if (next.receives) all.queues[next.chunk].gradients.push_back(all.received_gradient);
  }

  /// The same before overlap_p2p_comm: a turn runs both its passes, then sends and receives for both.
  void interleaved_in_turn() {
    const std::int64_t p = rank_.stages, m = rank_.micro_batches;
    if (m % p != 0) refuse("Megatron needs a number of micro-batches that the pipeline stages divide for its interleaved schedule", "pp");
    std::vector<Queues> queues(rank_.chunks.size());
    std::vector<std::int64_t> done(rank_.chunks.size());
    const bool all_in_warm_up = m + rank_.left_out == p;
    const std::int64_t before = 2 * (p - rank_.rank - 1) + (chunks() - 1) * p;
    const std::int64_t warm_up = all_in_warm_up ? passes() : std::min(passes(), before), steady = passes() - warm_up;
    const auto keep_input = [&](const Next& next, Tensor& input) {
      if (next.receives) queues[next.chunk].inputs.push_back(std::move(input));
    };
    const auto keep_gradient = [&](const Next& next, Tensor& gradient) {
      if (next.receives) queues[next.chunk].gradients.push_back(std::move(gradient));
    };
    start_gathering();
    queues[0].inputs.push_back(p2p_.receive(p2p_.before(), !rank_.chunks[0]->plan().embedding));
    for (std::int64_t k = 0; k < warm_up; ++k) {
      Next next = next_of(k, true);
      if (k == passes() - 1) next.receives = false;
      const Tensor output = forward_pass(queues, k);
      const Next back{k == warm_up - 1 && !all_in_warm_up && !last_rank(), queues.size() - 1};
      StageTransfers::Received received = p2p_.communicate(output, {}, next.receives, back.receives);
      deallocate(output);
      keep_input(next, received.input);
      keep_gradient(back, received.gradient);
    }
    for (std::int64_t k = 0; k < steady; ++k) {
      before_turn(k, steady, p * chunks());
      const Tensor output = forward_pass(queues, k + warm_up), gradient = backward_pass(queues, done, k);
      Next next = next_of(k + warm_up, true);
      if (k == steady - 1) next.receives = false;
      const Next back = next_of(k, false);
      StageTransfers::Received received = p2p_.communicate(output, gradient, next.receives, back.receives);
      deallocate(output);
      keep_input(next, received.input);
      keep_gradient(back, received.gradient);
    }
    if (all_in_warm_up) queues.back().gradients.push_back(p2p_.receive(p2p_.behind(), !rank_.chunks.back()->plan().head));
    for (std::int64_t k = steady; k < passes(); ++k) {
      Next back = next_of(k, false);
      if (k == passes() - 1) back.receives = false;
      const Tensor gradient = backward_pass(queues, done, k);
      StageTransfers::Received received = p2p_.communicate({}, gradient, false, back.receives);
      keep_gradient(back, received.gradient);
    }
    drop_reports();
  }

  StageTransfers p2p_;
};

}  // namespace

void run_megatron_schedule(MegatronRank& rank, const Tensor& scale) {
  if (rank.split) return run_split_schedule(rank, scale);
  Step(rank, scale).run();
}

}  // namespace plimsoll::program
