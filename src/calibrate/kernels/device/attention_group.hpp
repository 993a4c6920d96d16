// Attention forward with Hopper's warp-group instructions: a block takes 128 queries of one head, each of its two groups 64 of them, and
// goes through the keys a tile at a time, from the last to the first. While a group turns the scores of one tile into weights, its products
// of the weights before and the values go on, and the next tiles are on their way into shared memory.
#pragma once

#include "calibrate/kernels/device/attention.hpp"
#include "calibrate/kernels/device/warp_group_tile.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kGroupQueries = kThreads / kGroupLanes * kGroupRowsA;  // of a block

// Which queries of which head a block takes. Blocks that run together take heads whose keys and values fit into the cache; among those, the
// last queries, which have most keys to see, begin first.
struct QueryPlace {
  int head, block;
};
PLIMSOLL_FUNCTION QueryPlace query_place(int index, int heads, int kv_heads, int blocks, u64 bytes_of_kv_head) {
  constexpr u64 kCacheBytes = 32 << 20;
  int together = heads / kv_heads;
  while (together * 2 <= heads && heads % (together * 2) == 0 &&
         static_cast<u64>(together * 2 / (heads / kv_heads)) * bytes_of_kv_head <= kCacheBytes)
    together *= 2;
  const int section = index / (together * blocks), rest = index % (together * blocks);
  return {section * together + rest % together, blocks - 1 - rest / together};
}

// Heads of 64 are narrow enough for two blocks on a multiprocessor, one of which multiplies while the other weighs: that takes small tiles,
// and queries in registers. Shared memory is in chunks of 16 bytes.
template <int kWidth>
struct Forward {
  static constexpr bool kQueriesKept = kWidth == 64;
  static constexpr int kTile = kWidth == 64 ? 64 : 128;  // keys
  static constexpr int kQueryChunks = kQueriesKept ? 0 : kGroupQueries * kWidth / 8, kTileChunks = kTile * kWidth / 8;
  static constexpr int kChunks = kQueryChunks + 4 * kTileChunks;  // keys and values twice
};

// Scores to weights exp2(scale·score − maximum), in place. `shrink` is what the output so far is to be multiplied by. The products are
// fused everywhere, since a maximum of kNothing is exact only because its product is.
template <int kTile>
PLIMSOLL_FUNCTION void weigh_group(GroupTile<kTile>& scores, float (&maximum)[2], float (&sum)[2], float (&shrink)[2], float scale) {
  constexpr int kValues = GroupTile<kTile>::kValues;
  float scaled[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = maximum[r];
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) largest = larger(largest, scores.value[i / 2 * 4 + 2 * r + i % 2]);
    largest = larger(largest, lane_xor<1>(largest));
    largest = larger(largest, lane_xor<2>(largest));
    scaled[r] = largest * scale;
    shrink[r] = exp2_of(fused(maximum[r], scale, -scaled[r]));
    sum[r] *= shrink[r];
    maximum[r] = largest;
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int r = i / 2 % 2;
    scores.value[i] = exp2_of(fused(scores.value[i], scale, -scaled[r]));
    sum[r] += scores.value[i];
  }
}

// `ahead`: first key of the tile − first query of the group.
template <int kTile>
PLIMSOLL_FUNCTION void mask_group(GroupTile<kTile>& scores, int ahead) {
  const int last = group_row(0) - ahead - group_column(0);
#pragma unroll
  for (int i = 0; i < GroupTile<kTile>::kValues; ++i) {
    if (8 * (i / 4) + i % 2 > last + 8 * (i / 2 % 2)) scores.value[i] = kNothing;
  }
}

template <int kMask>
PLIMSOLL_FUNCTION u32 lane_xor_word(u32 value) {
  return __builtin_bit_cast(u32, lane_xor<kMask>(__builtin_bit_cast(float, value)));
}

// Four lanes exchange the four words that each has, so that each has four neighbouring ones.
PLIMSOLL_FUNCTION u32x4 turn_quad(u32x4 own) {
  const bool odd = lane_index() % 2 != 0, late = lane_index() / 2 % 2 != 0;
  const u32 a = lane_xor_word<1>(odd ? own[0] : own[1]), b = lane_xor_word<1>(odd ? own[2] : own[3]);
  const u32x4 pairs = odd ? u32x4{a, own[1], b, own[3]} : u32x4{own[0], a, own[2], b};
  const u32 c = lane_xor_word<2>(late ? pairs[0] : pairs[2]), d = lane_xor_word<2>(late ? pairs[1] : pairs[3]);
  return late ? u32x4{c, d, pairs[2], pairs[3]} : u32x4{pairs[0], pairs[1], c, d};
}

// A tile's rows, times one factor each, as bf16.
template <int kWidth>
PLIMSOLL_FUNCTION void store_group(const GroupTile<kWidth>& tile, const float (&scale)[2], bf16* rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    u32x4* row = reinterpret_cast<u32x4*>(rows + group_row(2 * r) * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) {
      u32x4 words;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * (4 * i + j) + 2 * r;
        words[j] = pack_bf16(tile.value[at] * scale[r], tile.value[at + 1] * scale[r]);
      }
      row[4 * i + lane_index() % 4] = turn_quad(words);
    }
  }
}

// What a lane keeps of its group's queries: itself where registers hold it, the output so far and each of its two rows' maximum and sum.
template <int kWidth>
struct ForwardRows {
  static constexpr int kTile = Forward<kWidth>::kTile;
  GroupRows query[Forward<kWidth>::kQueriesKept ? kWidth / 16 : 1];
  GroupTile<kTile> scores;
  GroupTile<kWidth> output;
  GroupRows weights[kTile / 16];
  float maximum[2], sum[2], shrink[2];
  Begun begun;
};

template <int kWidth>
PLIMSOLL_FUNCTION void multiply_scores(ForwardRows<kWidth>& rows, const u32x4* queries, const u32x4* keys) {
  constexpr int kTile = Forward<kWidth>::kTile;
  const PanelOperand right = panel_operand(keys), left = panel_operand(queries);
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    const PanelOperand b = further(right, step % 4 * 2 + step / 4 * kTile * kPanelChunks);
    if constexpr (Forward<kWidth>::kQueriesKept) {
      if (step == 0) {
        multiply_group<false, false>(rows.begun, rows.scores, rows.query[step], b);
      } else {
        multiply_group<true, false>(rows.begun, rows.scores, rows.query[step], b);
      }
    } else {
      const PanelOperand a = further(left, step % 4 * 2 + step / 4 * kGroupQueries * kPanelChunks);
      if (step == 0) {
        multiply_group<false, false, false>(rows.begun, rows.scores, a, b);
      } else {
        multiply_group<true, false, false>(rows.begun, rows.scores, a, b);
      }
    }
  }
  group_commit(rows.begun);
}

template <int kWidth>
PLIMSOLL_FUNCTION void multiply_values(ForwardRows<kWidth>& rows, const u32x4* values) {
  constexpr int kTile = Forward<kWidth>::kTile;
  const PanelOperand right = turned_operand<kTile>(values);
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step)
    multiply_group<true, true>(rows.begun, rows.output, rows.weights[step], further(right, step * 16 * kPanelChunks));
  group_commit(rows.begun);
}

template <int kWidth>
PLIMSOLL_FUNCTION void keep_weights(ForwardRows<kWidth>& rows) {
#pragma unroll
  for (int step = 0; step < Forward<kWidth>::kTile / 16; ++step) rows.weights[step] = rows_of(rows.scores, step);
}

template <int kWidth>
PLIMSOLL_FUNCTION void attention_group(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads,
                                       int sequence, int causal) {
  using Shared = Forward<kWidth>;
  constexpr int kTile = Shared::kTile;
  PLIMSOLL_LARGE_SHARED_ARRAY(u32x4, shared, Shared::kChunks);
  u32x4 *shared_keys = shared + Shared::kQueryChunks, *shared_values = shared_keys + 2 * Shared::kTileChunks;
  const QueryPlace place = query_place(block_index(), heads, kv_heads, sequence / kGroupQueries, static_cast<u64>(sequence) * kWidth * 4);
  const int group = thread_index() / kGroupLanes, first_query = place.block * kGroupQueries + group * kGroupRowsA;
  const u64 head_start = static_cast<u64>(place.head) * static_cast<u64>(sequence);
  const u64 kv_start = static_cast<u64>(place.head / (heads / kv_heads)) * static_cast<u64>(sequence);
  const int tiles = (causal ? (place.block + 1) * kGroupQueries : sequence) / kTile;
  const float scale = kLog2E * inverse_root(static_cast<float>(kWidth));
  // The next tile of each, from the last to the first.
  const u32x4* keys = reinterpret_cast<const u32x4*>(k + kv_start * kWidth) + static_cast<u64>(tiles - 1) * Shared::kTileChunks;
  const u32x4* values = reinterpret_cast<const u32x4*>(v + kv_start * kWidth) + static_cast<u64>(tiles - 1) * Shared::kTileChunks;

  ForwardRows<kWidth> rows;
  if constexpr (Shared::kQueriesKept) {
    const u32* own = reinterpret_cast<const u32*>(q + (head_start + static_cast<u64>(first_query)) * kWidth);
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rows.query[step].r[i] = own[(group_row(2 * (i % 2)) * kWidth + 16 * step + 8 * (i / 2)) / 2 + lane_index() % 4];
    }
  } else {
    const u64 start = head_start + static_cast<u64>(place.block * kGroupQueries);
    copy_rows_ahead<kGroupQueries, kWidth>(rows.begun, shared, reinterpret_cast<const u32x4*>(q + start * kWidth));
  }
  copy_rows_ahead<kTile, kWidth>(rows.begun, shared_keys, keys);
  copies_commit(rows.begun);
  copy_rows_ahead<kTile, kWidth>(rows.begun, shared_values, values);
  if (tiles > 1) copy_rows_ahead<kTile, kWidth>(rows.begun, shared_keys + Shared::kTileChunks, keys - Shared::kTileChunks);
  copies_commit(rows.begun);

  clear(rows.output);
#pragma unroll
  for (int r = 0; r < 2; ++r) rows.maximum[r] = kNothing, rows.sum[r] = 0;
  const u32x4* queries = shared + group * kGroupRowsA * kPanelChunks;
  int ahead = (tiles - 1) * kTile - first_query;
  copies_wait<1>(rows.begun);
  group_sees_shared_memory();
  barrier();
  group_begin();
  multiply_scores(rows, queries, shared_keys);
  group_wait<0>(rows.begun, rows.scores);
  if (causal) mask_group(rows.scores, ahead);
  weigh_group(rows.scores, rows.maximum, rows.sum, rows.shrink, scale);
  keep_weights(rows);
  for (int turn = 1; turn < tiles; ++turn) {
    copies_wait<0>(rows.begun);
    group_sees_shared_memory();
    barrier();  // keys of this turn and values of the last are there; those before are read
    const int own = turn % 2 * Shared::kTileChunks, other = Shared::kTileChunks - own;
    if (turn + 1 < tiles)
      copy_rows_ahead<kTile, kWidth>(rows.begun, shared_keys + other, keys - static_cast<u64>(turn + 1) * Shared::kTileChunks);
    copy_rows_ahead<kTile, kWidth>(rows.begun, shared_values + own, values - static_cast<u64>(turn) * Shared::kTileChunks);
    copies_commit(rows.begun);
    group_begin();
    multiply_scores(rows, queries, shared_keys + own);
    multiply_values(rows, shared_values + other);
    group_wait<1>(rows.begun, rows.scores);
    ahead -= kTile;
    if (causal && ahead + kTile > 1) mask_group(rows.scores, ahead);
    weigh_group(rows.scores, rows.maximum, rows.sum, rows.shrink, scale);
    finish_before_what_follows(rows.sum, shared);
    group_wait<0>(rows.begun, rows.output);
#pragma unroll
    for (int i = 0; i < GroupTile<kWidth>::kValues; ++i) rows.output.value[i] *= rows.shrink[i / 2 % 2];
    keep_weights(rows);
  }
  copies_wait<0>(rows.begun);
  group_sees_shared_memory();
  barrier();
  group_begin();
  multiply_values(rows, shared_values + (tiles - 1) % 2 * Shared::kTileChunks);
  float inverses[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += lane_xor<1>(sum);
    sum += lane_xor<2>(sum);
    inverses[r] = inverse(sum);
    if (lane_index() % 4 == 0)
      log_sum[head_start + static_cast<u64>(first_query + group_row(2 * r))] = (rows.maximum[r] * scale + log2_of(sum)) * kLn2;
  }
  group_wait<0>(rows.begun, rows.output);
  store_group(rows.output, inverses, out + (head_start + static_cast<u64>(first_query)) * kWidth);
}

PLIMSOLL_KERNEL_OF_TWO(attention_bf16_d64_wgmma)
(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads, int sequence, int causal) {
  attention_group<64>(q, k, v, out, log_sum, heads, kv_heads, sequence, causal);
}
PLIMSOLL_KERNEL(attention_bf16_d128_wgmma)
(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads, int sequence, int causal) {
  attention_group<128>(q, k, v, out, log_sum, heads, kv_heads, sequence, causal);
}

}  // namespace PLIMSOLL_DEVICE
