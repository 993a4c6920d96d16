#include "program/ops/block_mask.hpp"

#include <utility>

#include "plimsoll/units.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBlock = 128;

Tensor filled_as(const Tensor& like, DType type) { return elementwise(like.tape(), {&like}, type); }

/// torch.cumsum of 32-bit integers along a sequence, as 32 bits less one: which document a token is of.
Tensor document_ids(const Tensor& starts) {
  Tensor ids;
  {
    const Tensor flags = filled_as(starts, DType::int32);
    ids = cumulative_sum(flags, DType::int64);
  }
  ids = to(ids, DType::int32);
  return filled_as(ids, DType::int32);
}

/// One sequence: where each document starts, and the document of each token.
std::vector<Tensor> starts_of_documents(const Tensor& positions) {
  Tape& tape = positions.tape();
  const std::int64_t length = positions.size(1);
  const Tensor row = view(positions, {length}), starts = filled_as(row, DType::boolean);
  Tensor ids = document_ids(starts);
  const Tensor tokens = arange(tape, length, DType::int32);
  Tensor offsets = filled(tape, {round_up(length + 1, kBlock)}, DType::int32);
  Tensor places;
  {
    Tensor chosen;
    {
      const Tensor none = filled_as(ids, DType::int32);
      chosen = elementwise(tape, {&starts, &ids, &none}, DType::int32);
    }
    places = to(chosen, DType::int64);
  }
  Tensor values;
  {
    const Tensor none = filled_as(tokens, DType::int32);
    values = elementwise(tape, {&starts, &tokens, &none}, DType::int32);
  }
  in_place(offsets, {&places, &values});
  places.reset();
  return {std::move(offsets), std::move(ids)};
}

/// Several sequences: the last position of each token's document.
std::vector<Tensor> ends_of_documents(const Tensor& positions) {
  Tape& tape = positions.tape();
  const Tensor starts = filled_as(positions, DType::boolean);
  Tensor ids = document_ids(starts);
  const Tensor tokens = expand(unsqueeze(arange(tape, positions.size(1), DType::int32), 0), positions.sizes());
  const Tensor next_start = filled(tape, positions.sizes(), DType::int32);
  Tensor next_document;
  {
    const Tensor later = filled_as(ids, DType::boolean);
    next_document = elementwise(tape, {&starts, &later}, DType::boolean);
  }
  Tensor places;
  {
    Tensor chosen;
    {
      const Tensor before = filled_as(ids, DType::int32), none = filled_as(ids, DType::int32);
      chosen = elementwise(tape, {&next_document, &before, &none}, DType::int32);
    }
    places = to(chosen, DType::int64);
  }
  Tensor values;
  {
    const Tensor none = filled_as(starts, DType::int32);
    values = elementwise(tape, {&next_document, &tokens, &none}, DType::int32);
  }
  in_place(next_start, {&places, &values});
  places.reset();
  values.reset();
  Tensor ends;
  {
    const Tensor rows = to(ids, DType::int64);
    ends = filled_as(ids, DType::int32);
  }
  return {filled_as(ends, DType::int32)};
}

/// argsort of whole rows of blocks: values and order, of which the order's 32-bit copy stays.
void order_blocks(Tape& tape, const Dims& blocks) {
  const Tensor values = tape.empty(blocks, DType::int32), order = tape.empty(blocks, DType::int64);
  gather(Gather::Function::sort, values.elements(), {&values}, {&order});
}

/// Half a BlockMask, of the blocks that are partly or wholly visible: numbers and indices by rows, then by columns, over a table with one
/// column more for what is padded.
void keep_blocks(Tape& tape, const Dims& counts, const Dims& blocks, Tensor table, std::vector<Tensor>& kept) {
  order_blocks(tape, blocks);
  kept.push_back(tape.empty(counts, DType::int32));
  kept.push_back(tape.empty(blocks, DType::int32));
  kept.push_back(tape.empty(counts, DType::int32));
  table.reset();
  order_blocks(tape, blocks);
}

/// The compiled create_block_mask.
void append_blocks(const Tensor& positions, std::vector<Tensor>& kept) {
  Tape& tape = positions.tape();
  const std::int64_t batch = positions.size(0), side = ceil_div(positions.size(1), kBlock);
  const Dims counts{batch, 1, side}, blocks{batch, 1, side, side}, padded{batch, 1, side, side + 1};
  Tensor partial = tape.empty(padded, DType::int32), full = tape.empty(padded, DType::int32);
  kept.push_back(tape.empty(blocks, DType::int32));  // by columns; made first, as dense tables
  kept.push_back(tape.empty(blocks, DType::int32));
  keep_blocks(tape, counts, blocks, std::move(partial), kept);
  keep_blocks(tape, counts, blocks, std::move(full), kept);
}

}  // namespace

std::vector<Tensor> packed_causal_mask(const Tensor& positions) {
  positions.tape().operator_name = "create_block_mask";
  std::vector<Tensor> kept = positions.size(0) == 1 ? starts_of_documents(positions) : ends_of_documents(positions);
  append_blocks(positions, kept);
  return kept;
}

}  // namespace plimsoll::program
