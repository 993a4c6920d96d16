// Attention backward as FlashAttention-2 does it: a block keeps 64 keys of one head and goes through the queries that see them 32 at a
// time. Scores are computed once more from what the forward pass left, the logarithm of each row's sum; with P the weights, O the output
// and δ = Σ dO·O of each query:
//   dV = Pᵀ·dO,  dS = P ∘ (dO·Vᵀ − δ),  dK = dSᵀ·Q / √width,  dQ = dS·K / √width.
// Every block adds its part of dQ in fp32; dK and dV are its own, summed over the query heads that share them.
#pragma once

#include "calibrate/kernels/device/attention.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kBackKeys = 64, kBackQueries = 32;
constexpr int kBackHalves = kWaves / 4;  // waves that share 16 keys: each takes a part of the queries, then a part of the columns

// δ of rows of kWidth elements: 16 bytes per lane, then a sum over the lanes of a row.
template <int kWidth>
PLIMSOLL_FUNCTION void attention_delta(const u16x8* gradient, const u16x8* output, float* delta, u64 rows) {
  constexpr u64 kChunks = kWidth / 8;
  const u64 vectors = rows * kChunks, rounds = (vectors + grid_threads() - 1) / grid_threads();
  for (u64 round = 0; round < rounds; ++round) {  // all lanes take part in every exchange
    const u64 i = round * grid_threads() + grid_thread(), at = i < vectors ? i : vectors - 1;
    const u16x8 x = gradient[at], y = output[at];
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += bf16_lane(x, e) * bf16_lane(y, e);
    if constexpr (kChunks == 16) sum += lane_xor<8>(sum);
    sum += lane_xor<4>(sum);
    sum += lane_xor<2>(sum);
    sum += lane_xor<1>(sum);
    if (i < vectors && i % kChunks == 0) delta[i / kChunks] = sum;
  }
}

// What a block shares while it goes through the queries.
template <int kWidth>
struct BackShared {
  u32x4 *keys, *queries, *gradients;            // columns of K, Q and dO: [width][key or query]
  u32x4 *weights, *score_gradients, *by_query;  // Pᵀ and dSᵀ: [key][query]; dS: [query][key]
};

// What a wave keeps of its 16 keys: K, where 255 registers hold it V too, and its columns of dK and dV.
template <int kWidth>
struct KeyRows {
  static constexpr int kColumns = kWidth / 16 / kBackHalves;
  static constexpr bool kKeepsValues = kBackHalves == 1 || kWidth == 64;
  typename ScoreTile::Fragment key[kWidth / 32], value[kKeepsValues ? kWidth / 32 : 1];
  const u32x4* values;
  ScoreTile key_gradient[kColumns], value_gradient[kColumns];
};

template <int kWidth>
PLIMSOLL_FUNCTION typename ScoreTile::Fragment row_fragment(const u32x4* rows, int step) {
  return ScoreTile::Fragment::load([&](int row, int chunk) { return rows + row * (kWidth / 8) + 4 * step + chunk; });
}

PLIMSOLL_FUNCTION void put(u32x4* shared, int place, int element, bf16 value) {
  reinterpret_cast<bf16*>(shared)[place * 8 + element] = value;
}

// Pᵀ and dSᵀ of the wave's 16 keys and of 16 queries, into shared memory. `ahead`: first key of the wave − first query of the tile.
template <int kWidth>
PLIMSOLL_FUNCTION void weights_of(const KeyRows<kWidth>& rows, const BackShared<kWidth>& shared, const u32x4* queries,
                                  const u32x4* gradients, const float* log_sum, const float* delta, int key_tile, int query_tile,
                                  bool causal, int ahead) {
  ScoreTile scores, products;
  clear(scores);
  clear(products);
#pragma unroll
  for (int step = 0; step < kWidth / 32; ++step) {
    multiply_add(scores, rows.key[step], row_fragment<kWidth>(queries, step));
    const auto gradient = row_fragment<kWidth>(gradients, step);
    if constexpr (KeyRows<kWidth>::kKeepsValues) {
      multiply_add(products, rows.value[step], gradient);
    } else {
      multiply_add(products, row_fragment<kWidth>(rows.values, step), gradient);
    }
  }
  const float scale = kLog2E * inverse_root(static_cast<float>(kWidth));
#pragma unroll
  for (int v = 0; v < ScoreTile::kValues; ++v) {
    const int column = ScoreTile::column(v), key = 16 * key_tile + ScoreTile::row(v), query = 16 * query_tile + column;
    const bool masked = causal && ahead + ScoreTile::row(v) > column;
    const float weight = masked ? 0.0f : exp2_of(scores.value[v] * scale - log_sum[column] * kLog2E);
    const float gradient = weight * (products.value[v] - delta[column]);
    put(shared.weights, spread<kBackQueries / 8>(key, query / 8), query % 8, to_bf16(weight));
    put(shared.score_gradients, spread<kBackQueries / 8>(key, query / 8), query % 8, to_bf16(gradient));
    put(shared.by_query, spread<kBackKeys / 8>(query, key / 8), key % 8, to_bf16(gradient));
  }
}

// The wave's columns of dV += Pᵀ·dO and dK += dSᵀ·Q.
template <int kWidth>
PLIMSOLL_FUNCTION void add_to_keys(KeyRows<kWidth>& rows, const BackShared<kWidth>& shared, int key_tile, int first_column) {
  const auto at = [](const u32x4* base, int first) {
    return ScoreTile::Fragment::load([&](int row, int chunk) { return base + spread<kBackQueries / 8>(first + row, chunk); });
  };
  const auto weights = at(shared.weights, 16 * key_tile), gradients = at(shared.score_gradients, 16 * key_tile);
#pragma unroll
  for (int i = 0; i < KeyRows<kWidth>::kColumns; ++i) {
    multiply_add(rows.value_gradient[i], weights, at(shared.gradients, first_column + 16 * i));
    multiply_add(rows.key_gradient[i], gradients, at(shared.queries, first_column + 16 * i));
  }
}

// The block's part of dQ = dS·K: a wave takes 16 of the queries and some of the columns.
template <int kWidth>
PLIMSOLL_FUNCTION void add_to_queries(const BackShared<kWidth>& shared, float* query_gradient) {
  constexpr int kGroups = kWaves / 2, kColumns = kWidth / 16 / kGroups;
  const int first_query = wave_index() % 2 * 16, first_column = wave_index() / 2 * kColumns * 16;
  const float scale = inverse_root(static_cast<float>(kWidth));
  const auto at = [](const u32x4* base, int first, int step) {
    return ScoreTile::Fragment::load([&](int row, int chunk) { return base + spread<kBackKeys / 8>(first + row, 4 * step + chunk); });
  };
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    ScoreTile sum;
    clear(sum);
#pragma unroll
    for (int step = 0; step < kBackKeys / 32; ++step) {
      multiply_add(sum, at(shared.by_query, first_query, step), at(shared.keys, first_column + 16 * i, step));
    }
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) {
      const int row = first_query + ScoreTile::row(v), column = first_column + 16 * i + ScoreTile::column(v);
      add_to_memory(query_gradient + row * kWidth + column, sum.value[v] * scale);
    }
  }
}

template <int kWidth>
PLIMSOLL_FUNCTION void store_keys(const KeyRows<kWidth>& rows, bf16* key_gradient, bf16* value_gradient, int first_column) {
  const float scale = inverse_root(static_cast<float>(kWidth));
#pragma unroll
  for (int i = 0; i < KeyRows<kWidth>::kColumns; ++i) {
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) {
      const int at = ScoreTile::row(v) * kWidth + first_column + 16 * i + ScoreTile::column(v);
      key_gradient[at] = to_bf16(rows.key_gradient[i].value[v] * scale);
      value_gradient[at] = to_bf16(rows.value_gradient[i].value[v]);
    }
  }
}

// One block per kBackKeys keys of a head of keys; the first keys, which most queries see, begin first.
template <int kWidth>
PLIMSOLL_FUNCTION void attention_backward(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum,
                                          const float* delta, float* query_gradient, bf16* key_gradient, bf16* value_gradient, int heads,
                                          int kv_heads, int sequence, int causal) {
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_keys, kWidth * kBackKeys / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_queries, kWidth * kBackQueries / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_gradients, kWidth * kBackQueries / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_weights, kBackKeys * kBackQueries / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_score_gradients, kBackKeys * kBackQueries / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_by_query, kBackKeys * kBackQueries / 8);
  const BackShared<kWidth> shared{shared_keys, shared_queries, shared_gradients, shared_weights, shared_score_gradients, shared_by_query};
  const int kv_head = block_index() % kv_heads, first_key = block_index() / kv_heads * kBackKeys, group = heads / kv_heads;
  const int key_tile = wave_index() % 4, half = wave_index() / 4, first_column = half * KeyRows<kWidth>::kColumns * 16;
  const u64 key_row = static_cast<u64>(kv_head) * static_cast<u64>(sequence) + static_cast<u64>(first_key);
  const u64 own_keys = (key_row + static_cast<u64>(16 * key_tile)) * kWidth;
  KeyRows<kWidth> rows;
  rows.values = reinterpret_cast<const u32x4*>(v + own_keys);
#pragma unroll
  for (int step = 0; step < kWidth / 32; ++step) {
    rows.key[step] = row_fragment<kWidth>(reinterpret_cast<const u32x4*>(k + own_keys), step);
    if constexpr (KeyRows<kWidth>::kKeepsValues) rows.value[step] = row_fragment<kWidth>(rows.values, step);
  }
#pragma unroll
  for (int i = 0; i < KeyRows<kWidth>::kColumns; ++i) clear(rows.key_gradient[i]), clear(rows.value_gradient[i]);
  load_transposed<kWidth, kBackKeys>(reinterpret_cast<const u16x4*>(k + key_row * kWidth), reinterpret_cast<u16x4*>(shared_keys));

  const int first_query = causal ? first_key : 0, tiles = (sequence - first_query) / kBackQueries;
  for (int turn = 0; turn < group * tiles; ++turn) {
    const int query = first_query + turn % tiles * kBackQueries;
    const u64 row = static_cast<u64>(kv_head * group + turn / tiles) * static_cast<u64>(sequence) + static_cast<u64>(query);
    load_transposed<kWidth, kBackQueries>(reinterpret_cast<const u16x4*>(q + row * kWidth), reinterpret_cast<u16x4*>(shared_queries));
    load_transposed<kWidth, kBackQueries>(reinterpret_cast<const u16x4*>(gradient + row * kWidth),
                                          reinterpret_cast<u16x4*>(shared_gradients));
#pragma unroll
    for (int i = 0; i < kBackQueries / 16 / kBackHalves; ++i) {
      const int tile = half + i * kBackHalves;
      const u64 at = row + static_cast<u64>(16 * tile);
      weights_of<kWidth>(rows, shared, reinterpret_cast<const u32x4*>(q + at * kWidth),
                         reinterpret_cast<const u32x4*>(gradient + at * kWidth), log_sum + at, delta + at, key_tile, tile, causal != 0,
                         first_key + 16 * key_tile - query - 16 * tile);
    }
    barrier();
    add_to_keys<kWidth>(rows, shared, key_tile, first_column);
    add_to_queries<kWidth>(shared, query_gradient + row * kWidth);
    barrier();
  }
  store_keys<kWidth>(rows, key_gradient + own_keys, value_gradient + own_keys, first_column);
}

PLIMSOLL_KERNEL(attention_delta_bf16_d64)(const u16x8* gradient, const u16x8* output, float* delta, u64 rows) {
  attention_delta<64>(gradient, output, delta, rows);
}
PLIMSOLL_KERNEL(attention_delta_bf16_d128)(const u16x8* gradient, const u16x8* output, float* delta, u64 rows) {
  attention_delta<128>(gradient, output, delta, rows);
}
PLIMSOLL_KERNEL(attention_backward_bf16_d64)
(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum, const float* delta, float* query_gradient,
 bf16* key_gradient, bf16* value_gradient, int heads, int kv_heads, int sequence, int causal) {
  attention_backward<64>(q, k, v, gradient, log_sum, delta, query_gradient, key_gradient, value_gradient, heads, kv_heads, sequence,
                         causal);
}
PLIMSOLL_KERNEL(attention_backward_bf16_d128)
(const bf16* q, const bf16* k, const bf16* v, const bf16* gradient, const float* log_sum, const float* delta, float* query_gradient,
 bf16* key_gradient, bf16* value_gradient, int heads, int kv_heads, int sequence, int causal) {
  attention_backward<128>(q, k, v, gradient, log_sum, delta, query_gradient, key_gradient, value_gradient, heads, kv_heads, sequence,
                          causal);
}

}  // namespace PLIMSOLL_DEVICE

#if defined(PLIMSOLL_WARP_GROUPS)
#include "calibrate/kernels/device/attention_backward_group.hpp"
#endif
