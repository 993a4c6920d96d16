// What small tensors hold is followed from numbers of the host; what is asserted here in Python holds in PyTorch (2.15, on the CPU), by
// arithmetic that is done by hand beside it.
#include <gtest/gtest.h>

#include "code/interpreter.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {
namespace {

/// "none", or what running the text says is wrong.
std::string error_of(const std::string& body) {
  try {
    Interpreter interpreter("import torch\n" + body, "m.py");
    interpreter.run();
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

constexpr const char* kNotFollowed = "what a tensor holds, read by the host, is not modelled in code";

TEST(Followed, NumbersOfTheHost) {
  EXPECT_EQ(error_of("assert torch.arange(2, 8, 2).tolist() == [2, 4, 6]\n"), "none");
  EXPECT_EQ(error_of("assert torch.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]\n"), "none");
  EXPECT_EQ(error_of("assert torch.full((2,), 7).tolist() == [7, 7] and torch.ones(1).item() == 1.0\n"), "none");
  EXPECT_EQ(error_of("assert torch.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]\n"), "none");
  EXPECT_EQ(error_of("assert [round(x.item(), 3) for x in torch.linspace(0, 0.1, 3)] == [0.0, 0.05, 0.1]\n"), "none");
  EXPECT_EQ(error_of("assert int(torch.tensor(3)) + float(torch.tensor(0.5)) == 3.5\n"), "none");
}

TEST(Followed, WhatFollowsFromThem) {
  EXPECT_EQ(error_of("assert (torch.arange(3) * 2 + 1).tolist() == [1, 3, 5]\n"), "none");
  EXPECT_EQ(error_of("x = torch.arange(3)\nassert (x[:, None] - x[None, :]).tolist() == [[0, -1, -2], [1, 0, -1], [2, 1, 0]]\n"), "none");
  EXPECT_EQ(error_of("assert torch.tensor([[2, 3], [4, 1]]).prod(-1).cumsum(0).tolist() == [6, 10]\n"), "none");
  EXPECT_EQ(error_of("assert torch.tensor([5, 7]).max() == 7 and torch.tensor([5, 7]).sum().item() == 12\n"), "none");
  EXPECT_EQ(error_of("assert torch.arange(6).view(2, 3).t().tolist() == [[0, 3], [1, 4], [2, 5]]\n"), "none");
  EXPECT_EQ(error_of("assert [p.tolist() for p in torch.arange(5).split([2, 3])] == [[0, 1], [2, 3, 4]]\n"), "none");
  EXPECT_EQ(error_of("assert torch.cat([torch.arange(2), torch.tensor([9])]).tolist() == [0, 1, 9]\n"), "none");
  EXPECT_EQ(error_of("assert torch.stack([torch.arange(2), torch.ones(2, dtype=torch.long)], 1).tolist() == [[0, 1], [1, 1]]\n"), "none");
  EXPECT_EQ(error_of("x = torch.arange(12).view(3, 4)\nassert x[1:, ::2].tolist() == [[4, 6], [8, 10]] and x[-1, 1].item() == 9\n"),
            "none");
  EXPECT_EQ(error_of("assert (torch.tensor([7, 8]) // 2).tolist() == [3, 4] and (torch.tensor([7, -7]) % 4).tolist() == [3, 1]\n"), "none");
  EXPECT_EQ(error_of("assert torch.tensor([1.7]).long().tolist() == [1] and torch.tensor([2]).float().item() == 2.0\n"), "none");
  EXPECT_EQ(error_of("assert torch.where(torch.arange(3) > 1, torch.arange(3), 7).tolist() == [7, 7, 2]\n"), "none");
  EXPECT_EQ(error_of("assert torch.where(torch.ones(300, 300) > 0, 2, 3).sum().item() == 180000\n"), "none");  // 300 * 300 twos
  EXPECT_EQ(error_of("assert torch.clamp(torch.arange(5), min=1, max=3).tolist() == [1, 1, 2, 3, 3]\n"), "none");
  EXPECT_EQ(error_of("x = torch.ones(9, 9)\nx[x == 2] = 5\nassert x.sum().item() == 81\n"), "none");  // a mask of no truths changes nothing
  EXPECT_EQ(error_of("assert torch.div(7, 2, rounding_mode='floor').item() == 3 and torch.add(2, 3).item() == 5\n"),
            "none");                                                                                                   // of two numbers
  EXPECT_EQ(error_of("assert torch.ones(200, 200)[torch.zeros(2, dtype=torch.long)].sum().item() == 400\n"), "none");  // rows of ones
  EXPECT_EQ(error_of("assert not (torch.arange(3) == 1).all() and (torch.arange(3) == 1).any()\n"), "none");
}

// What is computed of draws is not known, but taken to be finite; of what is followed its numbers tell, whatever they are.
TEST(Followed, WhatIsComputedIsFinite) {
  EXPECT_EQ(error_of("x = torch.rand(3) / 2\nassert torch.isfinite(x).all() and not torch.isinf(x).any() and not torch.isnan(x).any()\n"), "none");
  EXPECT_EQ(error_of("x = torch.full((300, 300), float('-inf'))\nassert torch.isinf(x).all() and not torch.isfinite(x).any()\n"), "none");
  EXPECT_EQ(error_of("torch.isfinite(torch.tensor([1.0, float('inf')])).tolist()\n"), kNotFollowed);
}

TEST(Followed, NotWhatIsNotKnown) {
  EXPECT_EQ(error_of("torch.rand(2).tolist()\n"), kNotFollowed);
  EXPECT_EQ(error_of("torch.zeros(20000).tolist()\n"), kNotFollowed);  // more than are followed
  EXPECT_EQ(error_of("(torch.rand(2) + torch.arange(2)).tolist()\n"), kNotFollowed);
  EXPECT_EQ(error_of("x = torch.arange(4)\nx[0] = 9\nx.tolist()\n"), kNotFollowed);           // written into
  EXPECT_EQ(error_of("x = torch.arange(4)\ny = x[1:]\nx += 1\ny.tolist()\n"), kNotFollowed);  // through another view of it
  EXPECT_EQ(error_of("x = torch.arange(4)\ny = x * 1\nx[0] = 9\nassert y.tolist() == [0, 1, 2, 3]\n"), "none");  // a copy stays
  EXPECT_EQ(error_of("if torch.rand(1) > 0:\n  pass\n"), "a branch on what a tensor holds is not modelled in code");
}

}  // namespace
}  // namespace plimsoll::code
