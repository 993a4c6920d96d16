// Attention forward as FlashAttention does it: a block takes 128 queries of one head and goes through the keys 64 (or 32) at a time;
// scores, their running maximum and sum, and the output stay on the chip. Layout [head][position][width], bf16.
#pragma once

#include "calibrate/kernels/device/tile.hpp"

namespace PLIMSOLL_DEVICE {

#if defined(PLIMSOLL_AMD)
constexpr int kQueryTiles = 2;  // of 16 rows, of one wave
template <int kWidth>
constexpr int kKeys = 64;  // of one tile
#else
constexpr int kQueryTiles = 1;
template <int kWidth>
constexpr int kKeys = kWidth == 64 ? 64 : 32;  // what 255 registers hold
#endif
template <int kWidth>
constexpr int kKeyTiles = kKeys<kWidth> / 16;
constexpr int kAttentionRows = 16 * kQueryTiles * kWaves;
// The score of a masked key. Differences are finite; and as a power of two it is exact times any scale: where all scores are masked so far,
// a fused multiply-add of one and the maximum gives zero, not what rounding left over, which is huge.
constexpr float kNothing = -0x1p100f;

using ScoreTile = Tile<bf16>;

// Chunk places in shared memory, apart by banks as in Slice: rows of `chunks` 16-byte chunks.
template <int kChunks>
PLIMSOLL_FUNCTION int spread(int row, int chunk) {
  return row * kChunks + (chunk ^ (kChunks < 8 ? row * kChunks / 8 % kChunks : row % 8));
}

template <int kWidth>
PLIMSOLL_FUNCTION void load_keys(const u32x4* keys, u32x4* shared) {
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int i = 0; i < kKeys<kWidth> * kChunks / kThreads; ++i) {
    const int at = thread_index() + i * kThreads;
    shared[spread<kChunks>(at / kChunks, at % kChunks)] = keys[at];
  }
}

// kRows rows of positions into rows of columns: 4 x 4 elements at a time are turned in registers.
template <int kWidth, int kRows>
PLIMSOLL_FUNCTION void load_transposed(const u16x4* rows, u16x4* shared) {
  constexpr int kQuads = kWidth / 4, kTurns = kRows / 4 * kQuads;
#pragma unroll
  for (int i = 0; i < (kTurns + kThreads - 1) / kThreads; ++i) {
    const int at = thread_index() + i * kThreads, quad = at / kQuads, column = at % kQuads;
    if (kTurns % kThreads != 0 && at >= kTurns) break;
    u16x4 in[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) in[j] = rows[(4 * quad + j) * kQuads + column];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      shared[spread<kRows / 8>(4 * column + j, quad / 2) * 2 + quad % 2] = u16x4{in[0][j], in[1][j], in[2][j], in[3][j]};
    }
  }
}

// What a wave keeps of its 16 queries.
template <int kWidth>
struct QueryRows {
  typename ScoreTile::Fragment query[kWidth / 32];
  ScoreTile output[kWidth / 16];
  float maximum[ScoreTile::kLaneRows], sum[ScoreTile::kLaneRows];  // in units of log2
};

template <int kWidth>
PLIMSOLL_FUNCTION void begin(QueryRows<kWidth>& rows, const u32x4* queries) {
#pragma unroll
  for (int step = 0; step < kWidth / 32; ++step) {
    rows.query[step] = ScoreTile::Fragment::load([&](int row, int chunk) { return queries + row * (kWidth / 8) + 4 * step + chunk; });
  }
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) clear(rows.output[i]);
#pragma unroll
  for (int r = 0; r < ScoreTile::kLaneRows; ++r) rows.maximum[r] = kNothing, rows.sum[r] = 0;
}

template <int kWidth>
PLIMSOLL_FUNCTION void score(const QueryRows<kWidth>& rows, const u32x4* keys, ScoreTile (&scores)[kKeyTiles<kWidth>]) {
#pragma unroll
  for (int j = 0; j < kKeyTiles<kWidth>; ++j) {
    clear(scores[j]);
#pragma unroll
    for (int step = 0; step < kWidth / 32; ++step) {
      const auto fragment =
          ScoreTile::Fragment::load([&](int row, int chunk) { return keys + spread<kWidth / 8>(16 * j + row, 4 * step + chunk); });
      multiply_add(scores[j], rows.query[step], fragment);
    }
  }
}

// Scores to weights exp2(scale·score − maximum), and the output so far to the new maximum. `ahead`: first key − first query of the tile.
template <int kWidth>
PLIMSOLL_FUNCTION void weigh(QueryRows<kWidth>& rows, ScoreTile (&scores)[kKeyTiles<kWidth>], float scale, bool causal, int ahead) {
  float maximum[ScoreTile::kLaneRows], shrink[ScoreTile::kLaneRows], sum[ScoreTile::kLaneRows];
#pragma unroll
  for (int r = 0; r < ScoreTile::kLaneRows; ++r) maximum[r] = rows.maximum[r], sum[r] = 0;
#pragma unroll
  for (int j = 0; j < kKeyTiles<kWidth>; ++j) {
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) {
      const bool masked = causal && ahead + 16 * j + ScoreTile::column(v) > ScoreTile::row(v);
      scores[j].value[v] = masked ? kNothing : scores[j].value[v] * scale;
      float& row_maximum = maximum[ScoreTile::row_of_value(v)];
      row_maximum = Maximum::join(row_maximum, scores[j].value[v]);
    }
  }
#pragma unroll
  for (int r = 0; r < ScoreTile::kLaneRows; ++r) {
    maximum[r] = row_reduce<Maximum, ScoreTile::kRowLanes>(maximum[r]);
    shrink[r] = exp2_of(rows.maximum[r] - maximum[r]);
    rows.maximum[r] = maximum[r];
  }
#pragma unroll
  for (int j = 0; j < kKeyTiles<kWidth>; ++j) {
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) {
      const int r = ScoreTile::row_of_value(v);
      scores[j].value[v] = exp2_of(scores[j].value[v] - maximum[r]);
      sum[r] += scores[j].value[v];
    }
  }
#pragma unroll
  for (int r = 0; r < ScoreTile::kLaneRows; ++r) rows.sum[r] = rows.sum[r] * shrink[r] + row_reduce<Sum, ScoreTile::kRowLanes>(sum[r]);
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) {
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) rows.output[i].value[v] *= shrink[ScoreTile::row_of_value(v)];
  }
}

// output += weights · values. The weights change lanes through the wave's own corner of shared memory.
template <int kWidth>
PLIMSOLL_FUNCTION void accumulate(QueryRows<kWidth>& rows, const ScoreTile (&weights)[kKeyTiles<kWidth>], const u32x4* values,
                                  u32x4* corner) {
  constexpr int kChunks = kKeys<kWidth> / 8;
  bf16* elements = reinterpret_cast<bf16*>(corner);
#pragma unroll
  for (int j = 0; j < kKeyTiles<kWidth>; ++j) {
#pragma unroll
    for (int v = 0; v < ScoreTile::kValues; ++v) {
      const int row = ScoreTile::row(v), key = 16 * j + ScoreTile::column(v);
      elements[spread<kChunks>(row, key / 8) * 8 + key % 8] = to_bf16(weights[j].value[v]);
    }
  }
  wave_barrier();
#pragma unroll
  for (int step = 0; step < kKeys<kWidth> / 32; ++step) {
    const auto left = ScoreTile::Fragment::load([&](int row, int chunk) { return corner + spread<kChunks>(row, 4 * step + chunk); });
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const auto right =
          ScoreTile::Fragment::load([&](int row, int chunk) { return values + spread<kChunks>(16 * i + row, 4 * step + chunk); });
      multiply_add(rows.output[i], left, right);
    }
  }
  wave_barrier();
}

template <int kWidth>
PLIMSOLL_FUNCTION void finish(const QueryRows<kWidth>& rows, bf16* output, float* log_sum) {
#pragma unroll
  for (int v = 0; v < ScoreTile::kValues; ++v) {
    const int r = ScoreTile::row_of_value(v), row = ScoreTile::row(v);
    const float scale = inverse(rows.sum[r]);
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) output[row * kWidth + 16 * i + ScoreTile::column(v)] = to_bf16(rows.output[i].value[v] * scale);
    if (ScoreTile::column(v) == 0) log_sum[row] = (rows.maximum[r] + log2_of(rows.sum[r])) * kLn2;
  }
}

// One block per kAttentionRows queries of a head; the heads' last queries, which have most keys to see, begin first.
template <int kWidth>
PLIMSOLL_FUNCTION void attention(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads,
                                 int sequence, int causal) {
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_keys, kKeys<kWidth> * kWidth / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_values, kKeys<kWidth> * kWidth / 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, corners, kWaves * 16 * kKeys<kWidth> / 8);
  const int head = block_index() % heads, query_block = sequence / kAttentionRows - 1 - block_index() / heads;
  const int first_query = query_block * kAttentionRows + wave_index() * 16 * kQueryTiles;
  const u64 head_start = static_cast<u64>(head) * static_cast<u64>(sequence);
  const u64 kv_start = static_cast<u64>(head / (heads / kv_heads)) * static_cast<u64>(sequence);
  const float scale = kLog2E * inverse_root(static_cast<float>(kWidth));
  QueryRows<kWidth> rows[kQueryTiles];
#pragma unroll
  for (int t = 0; t < kQueryTiles; ++t) {
    begin<kWidth>(rows[t], reinterpret_cast<const u32x4*>(q + (head_start + static_cast<u64>(first_query + 16 * t)) * kWidth));
  }

  const int end = causal ? (query_block + 1) * kAttentionRows : sequence;
  for (int first_key = 0; first_key < end; first_key += kKeys<kWidth>) {
    const u64 tile = (kv_start + static_cast<u64>(first_key)) * kWidth;
    load_keys<kWidth>(reinterpret_cast<const u32x4*>(k + tile), shared_keys);
    load_transposed<kWidth, kKeys<kWidth>>(reinterpret_cast<const u16x4*>(v + tile), reinterpret_cast<u16x4*>(shared_values));
    barrier();
#pragma unroll
    for (int t = 0; t < kQueryTiles; ++t) {
      const int query = first_query + 16 * t;
      if (causal && first_key > query + 15) continue;
      ScoreTile scores[kKeyTiles<kWidth>];
      score<kWidth>(rows[t], shared_keys, scores);
      weigh<kWidth>(rows[t], scores, scale, causal && first_key + kKeys<kWidth> > query, first_key - query);
      accumulate<kWidth>(rows[t], scores, shared_values, corners + wave_index() * 16 * kKeys<kWidth> / 8);
    }
    barrier();
  }
#pragma unroll
  for (int t = 0; t < kQueryTiles; ++t) {
    const u64 row = head_start + static_cast<u64>(first_query + 16 * t);
    finish<kWidth>(rows[t], out + row * kWidth, log_sum + row);
  }
}

PLIMSOLL_KERNEL(attention_bf16_d64)
(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads, int sequence, int causal) {
  attention<64>(q, k, v, out, log_sum, heads, kv_heads, sequence, causal);
}
PLIMSOLL_KERNEL(attention_bf16_d128)
(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* log_sum, int heads, int kv_heads, int sequence, int causal) {
  attention<128>(q, k, v, out, log_sum, heads, kv_heads, sequence, causal);
}

}  // namespace PLIMSOLL_DEVICE
