// Attention backward with Hopper's warp-group instructions: a block keeps 128 keys of one head, each of its two groups 64 of them, and goes
// through the queries that see them a tile at a time. Scores and their gradients are computed with the keys as rows, so that as weights
// they are rows of A of what is added to dV and dK; for dQ the gradients go through shared memory.
#pragma once

#include "calibrate/kernels/device/attention_backward.hpp"
#include "calibrate/kernels/device/attention_group.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kGroupKeys = kThreads / kGroupLanes * kGroupRowsA;  // of a block

// Wide heads leave registers for 64 queries at a time. Then dQ waits for a turn: while the groups meet for its weights, their products of
// this turn are on the way. Shared memory is in chunks of 16 bytes: queries, gradients and the two numbers of each query twice.
template <int kWidth>
struct Backward {
  static constexpr bool kLags = kWidth == 128;
  static constexpr bool kQuads = kWidth == 128;  // four sums of dQ go to memory at a time, for which lanes exchange theirs
  static constexpr int kQueries = kWidth == 64 ? 128 : 64;
  static constexpr int kPartColumns = 64;  // dQ: each group takes half of the queries or, of 64, of the columns
  static constexpr int kKeyChunks = kGroupKeys * kWidth / 8, kQueryChunks = kQueries * kWidth / 8, kNumberChunks = kQueries / 4;
  static constexpr int kStage = 2 * kQueryChunks, kScores = kGroupKeys * kQueries / 8;
  static constexpr int kStages = 2 * kKeyChunks, kScoresAt = kStages + 2 * kStage;
  static constexpr int kNumbersAt = kScoresAt + (kLags ? 2 : 1) * kScores;
  static constexpr int kChunks = kNumbersAt + 4 * kNumberChunks;
};

template <int kWidth>
struct BackwardRows {
  static constexpr int kQueries = Backward<kWidth>::kQueries;
  GroupTile<kQueries> scores, products;
  GroupTile<kWidth> key_gradient, value_gradient;
  GroupTile<Backward<kWidth>::kPartColumns> query_gradient;
  GroupRows weights[kQueries / 16], gradients[kQueries / 16];
  Begun begun;
};

// A and B are rows that are contiguous along k; of A, kRowsA lie in a panel, of B kColumns.
template <int kWidth, int kRowsA, int kColumns>
PLIMSOLL_FUNCTION void multiply_rows(Begun& begun, GroupTile<kColumns>& d, const u32x4* left, const u32x4* right) {
  const PanelOperand a = panel_operand(left), b = panel_operand(right);
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    const int along = step % 4 * 2, panel = step / 4 * kPanelChunks;
    if (step == 0) {
      multiply_group<false, false, false>(begun, d, a, b);
    } else {
      multiply_group<true, false, false>(begun, d, further(a, along + panel * kRowsA), further(b, along + panel * kColumns));
    }
  }
  group_commit(begun);
}

// D += rows · B, where B are kRows rows of k.
template <int kRows, int kColumns>
PLIMSOLL_FUNCTION void multiply_kept(Begun& begun, GroupTile<kColumns>& d, const GroupRows (&rows)[kRows / 16], const u32x4* right) {
  const PanelOperand b = turned_operand<kRows>(right);
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) multiply_group<true, true>(begun, d, rows[step], further(b, step * 16 * kPanelChunks));
  group_commit(begun);
}

// D = A · B, both rows of k: the block's keys.
template <int kColumns>
PLIMSOLL_FUNCTION void multiply_keys(Begun& begun, GroupTile<kColumns>& d, const u32x4* left, const u32x4* right, int right_offset) {
  const PanelOperand a = turned_operand<kGroupKeys>(left);
  const PanelOperand b = further(turned_operand<kGroupKeys>(right), right_offset);
#pragma unroll
  for (int step = 0; step < kGroupKeys / 16; ++step) {
    const int along = step * 16 * kPanelChunks;
    if (step == 0) {
      multiply_group<false, true, true>(begun, d, a, b);
    } else {
      multiply_group<true, true, true>(begun, d, further(a, along), further(b, along));
    }
  }
  group_commit(begun);
}

template <int kWidth>
PLIMSOLL_FUNCTION void fetch_queries(Begun& begun, u32x4* shared, int stage, const bf16* q, const bf16* gradient, const float* log_sum,
                                     const float* delta, u64 row) {
  using Shared = Backward<kWidth>;
  constexpr int kQueries = Shared::kQueries, kNumbers = Shared::kNumberChunks;
  u32x4* queries = shared + Shared::kStages + stage * Shared::kStage;
  copy_rows_ahead<kQueries, kWidth>(begun, queries, reinterpret_cast<const u32x4*>(q + row * kWidth));
  copy_rows_ahead<kQueries, kWidth>(begun, queries + Shared::kQueryChunks, reinterpret_cast<const u32x4*>(gradient + row * kWidth));
  if (thread_index() < 2 * kNumbers) {
    const float* from = thread_index() < kNumbers ? log_sum : delta;
    copy_ahead(begun, shared + Shared::kNumbersAt + 2 * stage * kNumbers + thread_index(),
               reinterpret_cast<const u32x4*>(from + row) + thread_index() % kNumbers);
  }
  copies_commit(begun);
}

// P from scores, in place. `ahead`: first key of the group − first query of the tile.
template <int kQueries>
PLIMSOLL_FUNCTION void weights_of_group(GroupTile<kQueries>& scores, const f32x2* log_sums, float scale, bool causal, int ahead) {
#pragma unroll
  for (int i = 0; i < GroupTile<kQueries>::kValues / 4; ++i) {
    const f32x2 log_sum = log_sums[4 * i + lane_index() % 4];
#pragma unroll
    for (int j = 0; j < 4; ++j) scores.value[4 * i + j] = exp2_of(scores.value[4 * i + j] * scale - log_sum[j % 2] * kLog2E);
  }
  if (!causal || ahead + kGroupRowsA <= 1) return;
  const int first = group_row(0) + ahead - group_column(0);
#pragma unroll
  for (int i = 0; i < GroupTile<kQueries>::kValues; ++i) {
    if (8 * (i / 4) + i % 2 < first + 8 * (i / 2 % 2)) scores.value[i] = 0;
  }
}

template <int kQueries>
PLIMSOLL_FUNCTION void gradients_of_group(GroupTile<kQueries>& products, const GroupTile<kQueries>& weights, const f32x2* deltas) {
#pragma unroll
  for (int i = 0; i < GroupTile<kQueries>::kValues / 4; ++i) {
    const f32x2 delta = deltas[4 * i + lane_index() % 4];
#pragma unroll
    for (int j = 0; j < 4; ++j) products.value[4 * i + j] = weights.value[4 * i + j] * (products.value[4 * i + j] - delta[j % 2]);
  }
}

// The block's part of dQ, into memory.
template <int kWidth>
PLIMSOLL_FUNCTION void add_to_queries(const GroupTile<Backward<kWidth>::kPartColumns>& part, float* query_gradient, float scale) {
  constexpr int kPartColumns = Backward<kWidth>::kPartColumns;
  const int group = thread_index() / kGroupLanes;
  float* to = query_gradient + group * (Backward<kWidth>::kQueries == 64 ? kPartColumns : kGroupRowsA * kWidth) + group_row(0) * kWidth;
  if constexpr (Backward<kWidth>::kQuads) {
    const bool odd = lane_index() % 2 != 0;
    to += lane_index() % 4 / 2 * 4 + (odd ? 8 : 0);
#pragma unroll
    for (int i = 0; i < GroupTile<kPartColumns>::kValues; i += 8) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float *near = part.value + i + 2 * r, *far = near + 4;
        const float a = lane_xor<1>(odd ? near[0] : far[0]) * scale, b = lane_xor<1>(odd ? near[1] : far[1]) * scale;
        const float c = (odd ? far[0] : near[0]) * scale, d = (odd ? far[1] : near[1]) * scale;
        add_quad_to_memory(to + 8 * r * kWidth + 8 * (i / 4), odd ? f32x4{a, b, c, d} : f32x4{c, d, a, b});
      }
    }
  } else {
    to += group_column(0);
#pragma unroll
    for (int i = 0; i < GroupTile<kPartColumns>::kValues; i += 2)
      add_pair_to_memory(to + 8 * (i / 2 % 2) * kWidth + 8 * (i / 4), part.value[i] * scale, part.value[i + 1] * scale);
  }
}

// One block per kGroupKeys keys of a head of keys; the first keys, which most queries see, begin first.
template <int kWidth>
PLIMSOLL_FUNCTION void attention_backward_group(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum,
                                                const float* delta, float* query_gradient, bf16* key_gradient, bf16* value_gradient,
                                                int heads, int kv_heads, int sequence, int causal) {
  using Shared = Backward<kWidth>;
  constexpr int kQueries = Shared::kQueries;
  PLIMSOLL_LARGE_SHARED_ARRAY(u32x4, shared, Shared::kChunks);
  const int heads_of_key = heads / kv_heads, blocks = sequence / kGroupKeys;
  const QueryPlace place =
      query_place(block_index(), kv_heads, kv_heads, blocks, static_cast<u64>(heads_of_key) * static_cast<u64>(sequence) * kWidth * 8);
  const int kv_head = place.head, first_key = (blocks - 1 - place.block) * kGroupKeys, group = thread_index() / kGroupLanes;
  const u64 key_row = static_cast<u64>(kv_head) * static_cast<u64>(sequence) + static_cast<u64>(first_key);
  u32x4 *keys = shared, *values = shared + Shared::kKeyChunks, *all_scores = shared + Shared::kScoresAt;
  const u32x4 *own_keys = keys + group * kGroupRowsA * kPanelChunks, *own_values = values + group * kGroupRowsA * kPanelChunks;
  BackwardRows<kWidth> rows;
  copy_rows_ahead<kGroupKeys, kWidth>(rows.begun, keys, reinterpret_cast<const u32x4*>(k + key_row * kWidth));
  copy_rows_ahead<kGroupKeys, kWidth>(rows.begun, values, reinterpret_cast<const u32x4*>(v + key_row * kWidth));

  const int first_query = causal ? first_key : 0, turns = heads_of_key * ((sequence - first_query) / kQueries);
  const float scale = inverse_root(static_cast<float>(kWidth));
  u64 head_start = static_cast<u64>(kv_head * heads_of_key) * static_cast<u64>(sequence);
  int query = first_query;
  fetch_queries<kWidth>(rows.begun, shared, 0, q, gradient, log_sum, delta, head_start + static_cast<u64>(query));

  clear(rows.key_gradient);
  clear(rows.value_gradient);
  const auto multiply_queries = [&](const u32x4* scores) __attribute__((always_inline)) {
    const int part = group * kGroupKeys * kPanelChunks;  // the second panel of queries or of columns
    if constexpr (kQueries == 64) {
      multiply_keys(rows.begun, rows.query_gradient, scores, keys, part);
    } else {
      multiply_keys(rows.begun, rows.query_gradient, scores + part, keys, 0);
    }
  };
  u64 last = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const int stage = turn % 2, ahead = first_key + group * kGroupRowsA - query;
    const u64 row = head_start + static_cast<u64>(query);
    query += kQueries;
    if (query == sequence) query = first_query, head_start += static_cast<u64>(sequence);
    copies_wait<0>(rows.begun);
    group_sees_shared_memory();
    barrier();  // this turn's queries are there; what the last turn read may be overwritten
    if (turn + 1 < turns)
      fetch_queries<kWidth>(rows.begun, shared, 1 - stage, q, gradient, log_sum, delta, head_start + static_cast<u64>(query));
    const u32x4 *queries = shared + Shared::kStages + stage * Shared::kStage, *gradients = queries + Shared::kQueryChunks;
    const f32x2* log_sums = reinterpret_cast<const f32x2*>(shared + Shared::kNumbersAt + 2 * stage * Shared::kNumberChunks);
    const f32x2* deltas = log_sums + kQueries / 2;
    u32x4* scores = all_scores + (Shared::kLags ? stage * Shared::kScores : 0);
    group_begin();
    multiply_rows<kWidth, kGroupKeys>(rows.begun, rows.scores, own_keys, queries);
    multiply_rows<kWidth, kGroupKeys>(rows.begun, rows.products, own_values, gradients);
    group_wait<1>(rows.begun, rows.scores);
    weights_of_group(rows.scores, log_sums, scale * kLog2E, causal != 0, ahead);
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) rows.weights[step] = rows_of(rows.scores, step);
    group_begin();
    multiply_kept<kQueries>(rows.begun, rows.value_gradient, rows.weights, gradients);
    group_wait<1>(rows.begun, rows.products);
    gradients_of_group(rows.products, rows.scores, deltas);
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      rows.gradients[step] = rows_of(rows.products, step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = group * kGroupRowsA + group_row(2 * (i % 2)), chunk = 2 * step + i / 2;
        reinterpret_cast<u32*>(scores + panel_place<kGroupKeys>(key, chunk))[lane_index() % 4] = rows.gradients[step].r[i];
      }
    }
    group_sees_shared_memory();
    group_begin();
    multiply_kept<kQueries>(rows.begun, rows.key_gradient, rows.gradients, queries);
    if constexpr (Shared::kLags) {
      if (turn > 0) {
        group_begin();
        multiply_queries(all_scores + (1 - stage) * Shared::kScores);
        group_wait<0>(rows.begun, rows.query_gradient);
        add_to_queries<kWidth>(rows.query_gradient, query_gradient + last * kWidth, scale);
      }
      group_wait<0>(rows.begun, rows.key_gradient);
      last = row;
    } else {
      barrier();  // the gradients of all keys are there
      multiply_queries(scores);
      group_wait<0>(rows.begun, rows.query_gradient);
      add_to_queries<kWidth>(rows.query_gradient, query_gradient + row * kWidth, scale);
    }
  }
  if constexpr (Shared::kLags) {
    barrier();
    group_begin();
    multiply_queries(all_scores + (turns - 1) % 2 * Shared::kScores);
    group_wait<0>(rows.begun, rows.query_gradient);
    add_to_queries<kWidth>(rows.query_gradient, query_gradient + last * kWidth, scale);
  }
  group_wait<0>(rows.begun, rows.key_gradient);
  group_wait<0>(rows.begun, rows.value_gradient);
  const u64 own = (key_row + static_cast<u64>(group * kGroupRowsA)) * kWidth;
  store_group(rows.key_gradient, {scale, scale}, key_gradient + own);
  store_group(rows.value_gradient, {1, 1}, value_gradient + own);
}

PLIMSOLL_KERNEL(attention_backward_bf16_d64_wgmma)
(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum, const float* delta, float* query_gradient,
 bf16* key_gradient, bf16* value_gradient, int heads, int kv_heads, int sequence, int causal) {
  attention_backward_group<64>(q, k, v, gradient, log_sum, delta, query_gradient, key_gradient, value_gradient, heads, kv_heads, sequence,
                               causal);
}
PLIMSOLL_KERNEL(attention_backward_bf16_d128_wgmma)
(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum, const float* delta, float* query_gradient,
 bf16* key_gradient, bf16* value_gradient, int heads, int kv_heads, int sequence, int causal) {
  attention_backward_group<128>(q, k, v, gradient, log_sum, delta, query_gradient, key_gradient, value_gradient, heads, kv_heads, sequence,
                                causal);
}

}  // namespace PLIMSOLL_DEVICE
