// Hopper's warp-group products on swizzled panels and its copies into shared memory; included by device/warp_group_tile.hpp, in the
// processor's namespace. Both are done as late as the hardware may do them, when their group is waited for: what is overwritten too early
// or read too early spoils the answer.
#pragma once

struct Begun {
  using Work = std::function<void()>;
  struct Queue {
    std::vector<Work> issued;                   // not committed yet
    std::deque<std::vector<Work>> committed{};  // not done yet

    void commit() {
      committed.push_back(std::move(issued));
      issued.clear();
    }
    void wait(std::size_t pending) {
      for (; committed.size() > pending; committed.pop_front())
        for (const Work& work : committed.front()) work();
    }
  };
  Queue copies{}, products{};
};

inline u32 pack_bf16(float low, float high) { return to_bf16(low).bits | static_cast<u32>(to_bf16(high).bits) << 16; }
inline void finish_before_what_follows(const float (&)[2], u32x4*) {}

inline void copy_ahead(Begun& begun, u32x4* shared, const u32x4* from) {
  begun.copies.issued.push_back([=] { *shared = *from; });
}
inline void copies_commit(Begun& begun) { begun.copies.commit(); }
template <int kPending>
void copies_wait(Begun& begun) {
  begun.copies.wait(kPending);
}

// Rows of 128 bytes, eight to a group; bits 4 to 6 of an address are exchanged by bits 7 to 9, as the hardware does it.
struct PanelOperand {
  const std::byte* start;
  int panel_bytes;  // of rows of k: to the next 64 columns
};
inline PanelOperand panel_operand(const u32x4* shared) { return {reinterpret_cast<const std::byte*>(shared), 0}; }
template <int kRows>
PanelOperand turned_operand(const u32x4* shared) {
  return {reinterpret_cast<const std::byte*>(shared), kRows * 128};
}
inline PanelOperand further(PanelOperand operand, int chunks) { return {operand.start + chunks * 16, operand.panel_bytes}; }

// A row of A or a column of B, at one of 16 k.
template <bool kTurned>
float factor(PanelOperand operand, int row, int k) {
  const int offset = kTurned ? row / 64 * operand.panel_bytes + k * 128 + row % 64 * 2 : row * 128 + k * 2;
  const auto address = reinterpret_cast<std::uintptr_t>(operand.start) + static_cast<std::uintptr_t>(offset);
  u16 bits;
  std::memcpy(&bits, reinterpret_cast<const std::byte*>(address ^ (address >> 7 & 7) << 4), sizeof bits);
  return to_float(bf16{bits});
}

// A lane's two rows of A.
struct LaneRows {
  float value[2][16];
};

template <bool kAdd, bool kTurnedB, int kColumns>
void multiply_lane(GroupTile<kColumns>& d, const LaneRows& rows, PanelOperand b) {
  if (!kAdd) std::memset(d.value, 0, sizeof d.value);
  for (int pair = 0; pair < kColumns / 4; ++pair) {
    const int column = 8 * (pair / 2) + 2 * (lane_index() % 4) + pair % 2, value = 4 * (pair / 2) + pair % 2;
    for (int k = 0; k < 16; ++k) {
      const float right = factor<kTurnedB>(b, column, k);
      d.value[value] += rows.value[0][k] * right;
      d.value[value + 2] += rows.value[1][k] * right;
    }
  }
}

template <bool kAdd, bool kTurnedA, bool kTurnedB, int kColumns>
void multiply_group(Begun& begun, GroupTile<kColumns>& d, PanelOperand a, PanelOperand b) {
  begun.products.issued.push_back([&d, a, b] {
    LaneRows rows;
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < 16; ++k) rows.value[half][k] = factor<kTurnedA>(a, 16 * (wave_index() % 4) + lane_index() / 4 + 8 * half, k);
    multiply_lane<kAdd, kTurnedB>(d, rows, b);
  });
}

// Lane 4g + t gives the rows g (registers 0, 2) and g + 8 (1, 3) at k = 2t, 2t + 1 and, in registers 2 and 3, at eight more.
template <bool kAdd, bool kTurnedB, int kColumns>
void multiply_group(Begun& begun, GroupTile<kColumns>& d, const GroupRows& a, PanelOperand b) {
  const std::byte* shown = emulator::exchange(&a, sizeof a).shown;
  LaneRows rows;
  for (int t = 0; t < 4; ++t) {
    GroupRows other;
    std::memcpy(&other, slot(shown, lane_index() / 4 * 4 + t), sizeof other);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) rows.value[i % 2][8 * (i / 2) + 2 * t + j] = to_float(bf16{static_cast<u16>(other.r[i] >> 16 * j)});
  }
  begun.products.issued.push_back([&d, rows, b] { multiply_lane<kAdd, kTurnedB>(d, rows, b); });
}
inline void group_commit(Begun& begun) { begun.products.commit(); }
template <int kPending, int kColumns>
void group_wait(Begun& begun, GroupTile<kColumns>&) {
  begun.products.wait(kPending);
}
