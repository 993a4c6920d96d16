// The kernels of the table for one instruction set. Included by one file per set, which names the set and gives Eigen a namespace of its
// own: code compiled for a newer processor must never be what the linker picks for an older one. For the same reason nothing here uses
// a container of the standard library.
#if !defined(PLIMSOLL_CPU_VARIANT)
#error "included by x86_64*.cpp and baseline.cpp"
#endif

#define EIGEN_NO_DEBUG
#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "calibrate/kernels/cpu/variant_table.hpp"

namespace plimsoll::calibrate::PLIMSOLL_CPU_VARIANT {
namespace {

using std::int64_t;
using std::uint16_t;
using std::uint32_t;

// ---- parts, scratch memory, bf16 --------------------------------------------------------------------------------------------------------

struct Range {
  int64_t first, end;
};

// Part `part` of `parts` of count elements, cut at multiples of `grain`.
Range range_of(int64_t count, int64_t grain, int part, int parts) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t first = grains * part / parts * grain, end = grains * (part + 1) / parts * grain;
  return {first, end < count ? end : count};
}

// Floats of one thread that outlive the call, so that a repeated kernel allocates once.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }
  float* need(int64_t count) {
    if (count > size_) {
      std::free(data_);
      const auto bytes = static_cast<std::size_t>((count * 4 + 63) / 64 * 64);
      data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
      size_ = data_ ? count : 0;
      if (!data_) std::abort();  // some tens of megabytes
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
};

void widen(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, 4);
  }
}

// Rounds to nearest even. The inputs are finite.
void narrow(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    to[i] = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
}

using Array = Eigen::Map<Eigen::ArrayXf>;
template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using View = Eigen::Map<RowMajor<T>, 0, Eigen::OuterStride<>>;
template <class T>
using ConstView = Eigen::Map<const RowMajor<T>, 0, Eigen::OuterStride<>>;

template <class T>
ConstView<T> rows_of(const T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns, Eigen::OuterStride<>(columns)};
}

// ---- streaming --------------------------------------------------------------------------------------------------------------------------

void empty(const Sizes&, void* const*, int, int) {}

void copy(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], 1024, part, parts);
  if (r.end <= r.first) return;
  std::memcpy(static_cast<float*>(buffers[1]) + r.first, static_cast<const float*>(buffers[0]) + r.first,
              static_cast<std::size_t>(r.end - r.first) * 4);
}

void triad(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], 1024, part, parts);
  const float *b = static_cast<const float*>(buffers[0]), *c = static_cast<const float*>(buffers[1]);
  float* __restrict a = static_cast<float*>(buffers[2]);
  for (int64_t i = r.first; i < r.end; ++i) a[i] = b[i] + 0.4f * c[i];
}

// Apart from its caller, where gcc would not vectorize it.
[[gnu::noinline]] void add_four(float* __restrict sum, const float* a, const float* b, const float* c, const float* d, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += (a[i] + b[i]) + (c[i] + d[i]);
}

// As on a device: a block reads `passes` chunks of 1024 floats, from its own beginning around the buffer.
void cache_read(const Sizes& sizes, void* const* buffers, int part, int parts) {
  constexpr int64_t kChunk = 1024;
  const int64_t chunks = sizes[0] / kChunk, passes = sizes[1];
  const float* source = static_cast<const float*>(buffers[0]);
  const Range r = range_of(sizes[2], 1, part, parts);
  // Sums lie like the chunks within a page: a load just ahead of a store at the same place of another page would wait for it.
  alignas(4096) float pages[2 * kChunk];
  const std::size_t first = reinterpret_cast<std::uintptr_t>(source) % 4096 / sizeof(float);
  float* sum = pages + first;
  for (int64_t block = r.first; block < r.end; ++block) {
    std::memset(sum, 0, kChunk * sizeof(float));
    for (int64_t pass = 0; pass < passes; pass += 4) {
      const auto chunk = [&](int64_t j) { return source + (block * passes + pass + j) % chunks * kChunk; };
      add_four(sum, chunk(0), chunk(1), chunk(2), chunk(3), kChunk);
    }
    float* out = static_cast<float*>(buffers[1]) + block * (kChunk / 4);
    for (int64_t i = 0; i < kChunk / 4; ++i) out[i] = (sum[4 * i] + sum[4 * i + 1]) + (sum[4 * i + 2] + sum[4 * i + 3]);
  }
}

void pointer_chase(const Sizes& sizes, void* const* buffers, int part, int) {
  if (part != 0) return;
  const std::int32_t* next = static_cast<const std::int32_t*>(buffers[0]);
  std::int32_t at = 0;
  for (int64_t i = 0; i < sizes[1]; ++i) at = next[at];
  *static_cast<std::int32_t*>(buffers[1]) = at;
}

// ---- multiply-adds in registers ---------------------------------------------------------------------------------------------------------

// 64-byte vectors; an instruction set with narrower registers takes several for each.
template <class T>
void vector_rate(const Sizes& sizes, void* const* buffers, int part, int parts, T factor, T summand) {
  typedef T Lanes __attribute__((vector_size(PLIMSOLL_CPU_VECTOR_BYTES)));
  constexpr int64_t kLanes = PLIMSOLL_CPU_VECTOR_BYTES / sizeof(T);
  constexpr int kChains = 16, kAtOnce = 8;
  T* out = static_cast<T*>(buffers[0]);
  const Range r = range_of(sizes[0] * 256, kLanes, part, parts);
  for (int64_t first = r.first; first < r.end; first += kLanes) {
    Lanes total{};
    for (int group = 0; group < kChains; group += kAtOnce) {
      Lanes chain[kAtOnce];
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t start = (group + j) / 2 * ((group + j) % 2 ? -1 : 1);
        T lanes[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = static_cast<T>((first + lane) % 256 + start);
        std::memcpy(&chain[j], lanes, sizeof lanes);
      }
      for (int64_t i = 0; i < sizes[1]; ++i) {
        for (int j = 0; j < kAtOnce; ++j) chain[j] = chain[j] * factor + summand;
      }
      for (int j = 0; j < kAtOnce; ++j) total += chain[j];
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) out[first + lane] = total[lane];
  }
}

void vector_rate_fp32(const Sizes& sizes, void* const* buffers, int part, int parts) {
  vector_rate<float>(sizes, buffers, part, parts, 0.99f, 0.01f);
}
void vector_rate_fp64(const Sizes& sizes, void* const* buffers, int part, int parts) {
  vector_rate<double>(sizes, buffers, part, parts, 0.99, 0.01);
}

// ---- matrix products
// ----------------------------------------------------------------------------------------------------------------------

struct Block {
  Range rows, columns;
};

// Parts as a grid of blocks whose sides are as equal as the number of parts allows, so that each packs little of the operands.
Block block_of(int64_t m, int64_t n, int part, int parts) {
  int across = 1;  // parts along n
  double best = -1;
  for (int c = 1; c <= parts; ++c) {
    if (parts % c != 0) continue;
    const double height = static_cast<double>(m) * c / parts, width = static_cast<double>(n) / c;
    const double squareness = height < width ? height / width : width / height;
    if (squareness > best) best = squareness, across = c;
  }
  return {range_of(m, 8, part / across, parts / across), range_of(n, 16, part % across, across)};
}

template <class T>
void gemm(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const int64_t n = sizes[1], k = sizes[2];
  const Block block = block_of(sizes[0], n, part, parts);
  const int64_t height = block.rows.end - block.rows.first, width = block.columns.end - block.columns.first;
  if (height <= 0 || width <= 0) return;
  const auto a = rows_of(static_cast<const T*>(buffers[0]) + block.rows.first * k, height, k);
  const auto b = rows_of(static_cast<const T*>(buffers[1]) + block.columns.first * k, width, k);
  View<T> c(static_cast<T*>(buffers[2]) + block.rows.first * n + block.columns.first, height, width, Eigen::OuterStride<>(n));
  c.noalias() = a * b.transpose();
}
void gemm_fp32(const Sizes& sizes, void* const* buffers, int part, int parts) { gemm<float>(sizes, buffers, part, parts); }
void gemm_fp64(const Sizes& sizes, void* const* buffers, int part, int parts) { gemm<double>(sizes, buffers, part, parts); }

// In fp32, of operands widened some rows at a time: 256, or what 16 MiB hold of very long ones.
void gemm_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  constexpr int64_t kPanel = 256, kMostFloats = 4 << 20;
  static thread_local Scratch scratch;
  const int64_t n = sizes[1], k = sizes[2], fitting = kMostFloats / (k > 0 ? k : 1);
  const int64_t panel = fitting > kPanel ? kPanel : fitting > 1 ? fitting : 1;
  const Block block = block_of(sizes[0], n, part, parts);
  float *a = scratch.need(2 * panel * k + panel * panel), *b = a + panel * k, *c = b + panel * k;
  for (int64_t row = block.rows.first; row < block.rows.end; row += panel) {
    const int64_t height = block.rows.end - row < panel ? block.rows.end - row : panel;
    widen(static_cast<const uint16_t*>(buffers[0]) + row * k, a, height * k);
    for (int64_t column = block.columns.first; column < block.columns.end; column += panel) {
      const int64_t width = block.columns.end - column < panel ? block.columns.end - column : panel;
      widen(static_cast<const uint16_t*>(buffers[1]) + column * k, b, width * k);
      View<float> result(c, height, width, Eigen::OuterStride<>(width));
      result.noalias() = rows_of<float>(a, height, k) * rows_of<float>(b, width, k).transpose();
      uint16_t* out = static_cast<uint16_t*>(buffers[2]) + row * n + column;
      for (int64_t i = 0; i < height; ++i) narrow(c + i * width, out + i * n, width);
    }
  }
}

// ---- attention
// ----------------------------------------------------------------------------------------------------------------------------

constexpr int64_t kQueries = 64, kKeys = 256;

// What one part holds of the queries that it works on, as fp32.
struct AttentionScratch {
  float *query, *key, *value, *score, *output, *maximum, *sum;
};

// One tile of keys: scores to weights, output and sums to the new maximum. Keys beyond `last_key(row)` = first_visible + row are masked.
void attend(AttentionScratch s, int64_t width, int64_t keys, int64_t first_visible, float scale) {
  View<float> score(s.score, kQueries, keys, Eigen::OuterStride<>(kKeys));
  score.noalias() = rows_of<float>(s.query, kQueries, width) * rows_of<float>(s.key, keys, width).transpose();
  for (int64_t row = 0; row < kQueries; ++row) {
    const int64_t visible = first_visible + row + 1 < keys ? first_visible + row + 1 : keys;
    Array all(s.score + row * kKeys, keys);
    if (visible <= 0) {
      all.setZero();
      continue;
    }
    Array seen(s.score + row * kKeys, visible);
    const float highest = seen.maxCoeff() * scale, maximum = highest > s.maximum[row] ? highest : s.maximum[row];
    const float shrink = std::exp(s.maximum[row] - maximum);
    seen = (seen * scale - maximum).exp();
    all.tail(keys - visible).setZero();
    s.sum[row] = s.sum[row] * shrink + seen.sum();
    s.maximum[row] = maximum;
    Array(s.output + row * width, width) *= shrink;
  }
  View<float> output(s.output, kQueries, width, Eigen::OuterStride<>(width));
  output.noalias() += score * rows_of<float>(s.value, keys, width);
}

template <int64_t width>
void attention(const Sizes& sizes, void* const* buffers, int part, int parts) {
  static thread_local Scratch scratch;
  const int64_t heads = sizes[0], kv_heads = sizes[1], sequence = sizes[2];
  const bool causal = sizes[3] != 0;
  float* memory = scratch.need(2 * kQueries * width + 2 * kKeys * width + kQueries * kKeys + 2 * kQueries);
  AttentionScratch s{};
  s.query = memory, s.output = s.query + kQueries * width, s.key = s.output + kQueries * width, s.value = s.key + kKeys * width;
  s.score = s.value + kKeys * width, s.maximum = s.score + kQueries * kKeys, s.sum = s.maximum + kQueries;
  const uint16_t *q = static_cast<const uint16_t*>(buffers[0]), *k = static_cast<const uint16_t*>(buffers[1]),
                 *v = static_cast<const uint16_t*>(buffers[2]);
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  const int64_t tiles = sequence / kQueries;
  // Heads first: neighbouring tasks, which go to different parts, take the same time where it is causal.
  for (int64_t task = part; task < heads * tiles; task += parts) {
    const int64_t head = task % heads, first = (tiles - 1 - task / heads) * kQueries, row = head * sequence + first;
    const int64_t kv_row = head / (heads / kv_heads) * sequence, end = causal ? first + kQueries : sequence;
    widen(q + row * width, s.query, kQueries * width);
    for (int64_t i = 0; i < kQueries; ++i) s.maximum[i] = -1e30f, s.sum[i] = 0;
    std::memset(s.output, 0, static_cast<std::size_t>(kQueries * width) * 4);
    for (int64_t key = 0; key < end; key += kKeys) {
      const int64_t keys = end - key < kKeys ? end - key : kKeys;
      widen(k + (kv_row + key) * width, s.key, keys * width);
      widen(v + (kv_row + key) * width, s.value, keys * width);
      attend(s, width, keys, causal ? first - key : sequence, scale);
    }
    for (int64_t i = 0; i < kQueries; ++i) {
      Array(s.output + i * width, width) /= s.sum[i];
      static_cast<float*>(buffers[4])[row + i] = s.maximum[i] + std::log(s.sum[i]);
    }
    narrow(s.output, static_cast<uint16_t*>(buffers[3]) + row * width, kQueries * width);
  }
}

// Gradients of one tile of kQueries queries and kQueries keys: what the backward pass multiplies.
struct BackScratch {
  float *query, *key, *value, *gradient;  // rows of the tile
  float *weight, *score;                  // P and dS, [query][key]
  float *first, *second;                  // sums: dK and dV, or dQ
};

template <int64_t width>
BackScratch back_scratch(float* memory) {
  BackScratch s{};
  s.query = memory, s.key = s.query + kQueries * width, s.value = s.key + kQueries * width, s.gradient = s.value + kQueries * width;
  s.first = s.gradient + kQueries * width, s.second = s.first + kQueries * width;
  s.weight = s.second + kQueries * width, s.score = s.weight + kQueries * kQueries;
  return s;
}

// P and dS of the tile. Keys beyond first_visible + row are masked; `log_sum` and `delta` are those of its queries.
template <int64_t width>
void weights_of(BackScratch s, const float* log_sum, const float* delta, int64_t first_visible) {
  View<float> weight(s.weight, kQueries, kQueries, Eigen::OuterStride<>(kQueries)),
      score(s.score, kQueries, kQueries, Eigen::OuterStride<>(kQueries));
  weight.noalias() = rows_of<float>(s.query, kQueries, width) * rows_of<float>(s.key, kQueries, width).transpose();
  score.noalias() = rows_of<float>(s.gradient, kQueries, width) * rows_of<float>(s.value, kQueries, width).transpose();
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  for (int64_t row = 0; row < kQueries; ++row) {
    Array w(s.weight + row * kQueries, kQueries), d(s.score + row * kQueries, kQueries);
    w = (w * scale - log_sum[row]).exp();
    const int64_t visible = first_visible + row + 1;
    if (visible < kQueries) w.tail(visible < 0 ? kQueries : kQueries - visible).setZero();
    d = w * (d - delta[row]) * scale;
  }
}

struct BackArguments {
  const uint16_t *q, *k, *v, *gradient;
  const float *log_sum, *delta;
};

// dK and dV of one tile of keys, from all queries of the heads that share it.
template <int64_t width>
void key_gradients(const Sizes& sizes, BackArguments a, int64_t kv_head, int64_t first_key, BackScratch s, uint16_t* dk, uint16_t* dv) {
  const int64_t group = sizes[0] / sizes[1], sequence = sizes[2], own = (kv_head * sequence + first_key) * width;
  View<float> key_sum(s.first, kQueries, width, Eigen::OuterStride<>(width)),
      value_sum(s.second, kQueries, width, Eigen::OuterStride<>(width));
  key_sum.setZero();
  value_sum.setZero();
  widen(a.k + own, s.key, kQueries * width);
  widen(a.v + own, s.value, kQueries * width);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t query = sizes[3] != 0 ? first_key : 0; query < sequence; query += kQueries) {
      const int64_t row = head * sequence + query;
      widen(a.q + row * width, s.query, kQueries * width);
      widen(a.gradient + row * width, s.gradient, kQueries * width);
      weights_of<width>(s, a.log_sum + row, a.delta + row, sizes[3] != 0 ? query - first_key : sequence);
      key_sum.noalias() += rows_of<float>(s.score, kQueries, kQueries).transpose() * rows_of<float>(s.query, kQueries, width);
      value_sum.noalias() += rows_of<float>(s.weight, kQueries, kQueries).transpose() * rows_of<float>(s.gradient, kQueries, width);
    }
  narrow(s.first, dk + own, kQueries * width);
  narrow(s.second, dv + own, kQueries * width);
}

// dQ of one tile of queries, added to what is there.
template <int64_t width>
void query_gradients(const Sizes& sizes, BackArguments a, int64_t head, int64_t first_query, BackScratch s, float* dq) {
  const int64_t sequence = sizes[2], row = head * sequence + first_query, keys = head / (sizes[0] / sizes[1]) * sequence;
  View<float> sum(dq + row * width, kQueries, width, Eigen::OuterStride<>(width));
  widen(a.q + row * width, s.query, kQueries * width);
  widen(a.gradient + row * width, s.gradient, kQueries * width);
  for (int64_t key = 0; key < (sizes[3] != 0 ? first_query + kQueries : sequence); key += kQueries) {
    widen(a.k + (keys + key) * width, s.key, kQueries * width);
    widen(a.v + (keys + key) * width, s.value, kQueries * width);
    weights_of<width>(s, a.log_sum + row, a.delta + row, sizes[3] != 0 ? first_query - key : sequence);
    sum.noalias() += rows_of<float>(s.score, kQueries, kQueries) * rows_of<float>(s.key, kQueries, width);
  }
}

// Nobody's part writes what another's does: scores are computed twice, once for the keys and once for the queries.
template <int64_t width>
void attention_backward(const Sizes& sizes, void* const* buffers, int part, int parts) {
  static thread_local Scratch scratch;
  const BackScratch s = back_scratch<width>(scratch.need(6 * kQueries * width + 2 * kQueries * kQueries));
  const auto halves = [&](int i) { return static_cast<const uint16_t*>(buffers[i]); };
  const BackArguments a{
      halves(0), halves(1), halves(2), halves(3), static_cast<const float*>(buffers[4]), static_cast<const float*>(buffers[5])};
  const int64_t tiles = sizes[2] / kQueries, heads = sizes[0], kv_heads = sizes[1];
  for (int64_t task = part; task < kv_heads * tiles; task += parts)
    key_gradients<width>(sizes, a, task % kv_heads, task / kv_heads * kQueries, s, static_cast<uint16_t*>(buffers[7]),
                         static_cast<uint16_t*>(buffers[8]));
  for (int64_t task = part; task < heads * tiles; task += parts)
    query_gradients<width>(sizes, a, task % heads, task / heads * kQueries, s, static_cast<float*>(buffers[6]));
}

template <int64_t width>
void attention_delta(const Sizes& sizes, void* const* buffers, int part, int parts) {
  static thread_local Scratch scratch;
  float *gradient = scratch.need(2 * width), *output = gradient + width;
  const Range r = range_of(sizes[0], 16, part, parts);
  for (int64_t row = r.first; row < r.end; ++row) {
    widen(static_cast<const uint16_t*>(buffers[0]) + row * width, gradient, width);
    widen(static_cast<const uint16_t*>(buffers[1]) + row * width, output, width);
    static_cast<float*>(buffers[2])[row] = (Array(gradient, width) * Array(output, width)).sum();
  }
}

// ---- rows
// -----------------------------------------------------------------------------------------------------------------------------------

void rmsnorm_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  static thread_local Scratch scratch;
  const int64_t columns = sizes[1];
  float *x = scratch.need(2 * columns), *weight = x + columns;
  widen(static_cast<const uint16_t*>(buffers[1]), weight, columns);
  const Range r = range_of(sizes[0], 1, part, parts);
  for (int64_t row = r.first; row < r.end; ++row) {
    widen(static_cast<const uint16_t*>(buffers[0]) + row * columns, x, columns);
    Array values(x, columns);
    const float norm = 1 / std::sqrt(values.square().sum() / static_cast<float>(columns) + 1e-5f);
    values = values * norm * Array(weight, columns);
    narrow(x, static_cast<uint16_t*>(buffers[2]) + row * columns, columns);
  }
}

void softmax_fp32(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const int64_t columns = sizes[1];
  const Range r = range_of(sizes[0], 1, part, parts);
  for (int64_t row = r.first; row < r.end; ++row) {
    const Eigen::Map<const Eigen::ArrayXf> x(static_cast<const float*>(buffers[0]) + row * columns, columns);
    Array y(static_cast<float*>(buffers[1]) + row * columns, columns);
    y = (x - x.maxCoeff()).exp();
    y *= 1 / y.sum();
  }
}

void cross_entropy_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  static thread_local Scratch scratch;
  const int64_t columns = sizes[1];
  const float scale = 1 / static_cast<float>(sizes[0]);
  float* x = scratch.need(columns);
  const Range r = range_of(sizes[0], 1, part, parts);
  for (int64_t row = r.first; row < r.end; ++row) {
    widen(static_cast<const uint16_t*>(buffers[0]) + row * columns, x, columns);
    const std::int32_t wanted = static_cast<const std::int32_t*>(buffers[1])[row];
    const float logit = x[wanted];
    Array values(x, columns);
    const float maximum = values.maxCoeff();
    values = (values - maximum).exp();
    const float sum = values.sum();
    static_cast<float*>(buffers[2])[row] = maximum + std::log(sum) - logit;
    values *= scale / sum;
    x[wanted] -= scale;
    narrow(x, static_cast<uint16_t*>(buffers[3]) + row * columns, columns);
  }
}

// ---- element by element
// -------------------------------------------------------------------------------------------------------------------

constexpr int64_t kStrip = 2048;  // elements that stay in the first cache while they are worked on

// y = f(a, b) of bf16 by strips of fp32.
template <class Function>
void binary_bf16(const Sizes& sizes, void* const* buffers, int part, int parts, Function function) {
  const Range r = range_of(sizes[0], kStrip, part, parts);
  alignas(64) float a[kStrip], b[kStrip];
  for (int64_t first = r.first; first < r.end; first += kStrip) {
    const int64_t count = r.end - first < kStrip ? r.end - first : kStrip;
    widen(static_cast<const uint16_t*>(buffers[0]) + first, a, count);
    widen(static_cast<const uint16_t*>(buffers[1]) + first, b, count);
    function(Array(a, count), Array(b, count));
    narrow(a, static_cast<uint16_t*>(buffers[2]) + first, count);
  }
}

void add_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  binary_bf16(sizes, buffers, part, parts, [](Array a, Array b) { a += b; });
}
void swiglu_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  binary_bf16(sizes, buffers, part, parts, [](Array gate, Array up) { gate = gate / (1 + (-gate).exp()) * up; });
}

void cast_fp32_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], 1024, part, parts);
  narrow(static_cast<const float*>(buffers[0]) + r.first, static_cast<uint16_t*>(buffers[1]) + r.first, r.end - r.first);
}
void cast_bf16_fp32(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], 1024, part, parts);
  widen(static_cast<const uint16_t*>(buffers[0]) + r.first, static_cast<float*>(buffers[1]) + r.first, r.end - r.first);
}

void adam_strip(const float* gradient, float* __restrict p, float* __restrict m, float* __restrict v, int64_t count) {
  using C = AdamConstants;
  constexpr auto rate = static_cast<float>(C::rate), decay = static_cast<float>(C::decay), epsilon = static_cast<float>(C::epsilon);
  constexpr auto beta1 = static_cast<float>(C::beta1), beta2 = static_cast<float>(C::beta2);
  const auto correction1 = static_cast<float>(1 / (1 - std::pow(C::beta1, C::step)));
  const auto correction2 = static_cast<float>(1 / (1 - std::pow(C::beta2, C::step)));
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    p[i] -= rate * (m[i] * correction1 / (std::sqrt(v[i] * correction2) + epsilon) + decay * p[i]);
  }
}

void adam_fp32(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], 1024, part, parts);
  const auto at = [&](int i) { return static_cast<float*>(buffers[i]) + r.first; };
  adam_strip(at(0), at(1), at(2), at(3), r.end - r.first);
}

void adam_mixed(const Sizes& sizes, void* const* buffers, int part, int parts) {
  const Range r = range_of(sizes[0], kStrip, part, parts);
  alignas(64) float gradient[kStrip];
  for (int64_t first = r.first; first < r.end; first += kStrip) {
    const int64_t count = r.end - first < kStrip ? r.end - first : kStrip;
    const auto at = [&](int i) { return static_cast<float*>(buffers[i]) + first; };
    widen(static_cast<const uint16_t*>(buffers[0]) + first, gradient, count);
    adam_strip(gradient, at(1), at(2), at(3), count);
    narrow(at(1), static_cast<uint16_t*>(buffers[4]) + first, count);
  }
}

typedef uint16_t Eight __attribute__((vector_size(16)));

Eight load_eight(const uint16_t* from) {
  Eight value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// 8 x 8 elements: three times, rows four, two and one apart are interleaved.
void transpose_8x8(const uint16_t* from, int64_t from_pitch, uint16_t* to, int64_t to_pitch) {
  Eight row[8], next[8];
  for (int i = 0; i < 8; ++i) row[i] = load_eight(from + i * from_pitch);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shufflevector(row[i], row[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; ++i) row[i] = next[i];
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_pitch, &row[i], sizeof row[i]);
}

// Tile by tile through a copy, because rows of x that are a power of two apart share few sets of the cache.
void transpose_bf16(const Sizes& sizes, void* const* buffers, int part, int parts) {
  constexpr int64_t kSide = 128;  // four cache lines of bf16: enough for the prefetcher on both sides
  const int64_t rows = sizes[0], columns = sizes[1];
  const uint16_t* x = static_cast<const uint16_t*>(buffers[0]);
  uint16_t* y = static_cast<uint16_t*>(buffers[1]);
  const Range r = range_of(rows, kSide, part, parts);
  uint16_t tile[kSide][kSide];
  for (int64_t row0 = r.first; row0 < r.end; row0 += kSide) {
    const int64_t height = r.end - row0 < kSide ? r.end - row0 : kSide;
    for (int64_t column0 = 0; column0 < columns; column0 += kSide) {
      const int64_t width = columns - column0 < kSide ? columns - column0 : kSide;
      for (int64_t i = 0; i < height; ++i) {
        std::memcpy(tile[i], x + (row0 + i) * columns + column0, static_cast<std::size_t>(width) * sizeof(uint16_t));
      }
      for (int64_t j = 0; j < width; j += 8) {
        for (int64_t i = 0; i < height; i += 8) transpose_8x8(&tile[i][j], kSide, y + (column0 + j) * rows + row0 + i, rows);
      }
    }
  }
}

}  // namespace

const CpuVariantRow kernels[] = {{"empty", empty},
                                 {"copy", copy},
                                 {"triad", triad},
                                 {"cache_read", cache_read},
                                 {"pointer_chase", pointer_chase},
                                 {"vector_rate_fp32", vector_rate_fp32},
                                 {"vector_rate_fp64", vector_rate_fp64},
                                 {"gemm_fp32", gemm_fp32},
                                 {"gemm_fp64", gemm_fp64},
                                 {"gemm_bf16", gemm_bf16},
                                 {"attention_bf16_d64", attention<64>},
                                 {"attention_bf16_d128", attention<128>},
                                 {"attention_delta_bf16_d64", attention_delta<64>},
                                 {"attention_delta_bf16_d128", attention_delta<128>},
                                 {"attention_backward_bf16_d64", attention_backward<64>},
                                 {"attention_backward_bf16_d128", attention_backward<128>},
                                 {"rmsnorm_bf16", rmsnorm_bf16},
                                 {"softmax_fp32", softmax_fp32},
                                 {"cross_entropy_bf16", cross_entropy_bf16},
                                 {"add_bf16", add_bf16},
                                 {"swiglu_bf16", swiglu_bf16},
                                 {"cast_fp32_bf16", cast_fp32_bf16},
                                 {"cast_bf16_fp32", cast_bf16_fp32},
                                 {"adam_fp32", adam_fp32},
                                 {"adam_mixed", adam_mixed},
                                 {"transpose_bf16", transpose_bf16},
                                 {nullptr, nullptr}};

}  // namespace plimsoll::calibrate::PLIMSOLL_CPU_VARIANT
