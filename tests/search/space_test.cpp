// The space by index, and who judges it.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "plimsoll/error.hpp"
#include "plimsoll/search.hpp"
#include "search/legality.hpp"
#include "search/screen.hpp"

namespace plimsoll {
namespace {

using namespace searching;

SearchRequest small_request() {
  SearchRequest request;
  request.model = load_model("gpt2");
  request.cluster = parse_cluster("1x8xh100-sxm");
  set_options(request.base, {{"global_batch", "64"}, {"seq", "1024"}, {"framework", "megatron-core"}});
  request.threads = 2;
  return request;
}

TEST(AxisValues, ListsRangesAndSteps) {
  using Values = std::vector<std::string>;
  EXPECT_EQ(parse_axis_values("4", "--tp"), (Values{"4"}));
  EXPECT_EQ(parse_axis_values("1,2,8", "--tp"), (Values{"1", "2", "8"}));
  EXPECT_EQ(parse_axis_values("1..16", "--tp"), (Values{"1", "2", "4", "8", "16"}));
  EXPECT_EQ(parse_axis_values("3..20", "--tp"), (Values{"3", "6", "12"}));
  EXPECT_EQ(parse_axis_values("2..8/2", "--tp"), (Values{"2", "4", "6", "8"}));
  EXPECT_EQ(parse_axis_values("none,full", "--recompute"), (Values{"none", "full"}));
  EXPECT_EQ(parse_axis_values("none|selective:core_attn,mlp", "--recompute"), (Values{"none", "selective:core_attn,mlp"}));
  EXPECT_EQ(parse_axis_values("2,2,1..2", "--tp"), (Values{"2", "1"}));
}

TEST(AxisValues, WrongOnesAreNamed) {
  for (const char* text : {"8..1", "1..8/0", "0..8", "1..1000000/1", ",", "1,,2"})
    EXPECT_THROW(parse_axis_values(text, "--tp"), Error) << text;
}

/// index = (layout · settings + setting) · depths + depth, and back.
TEST(Space, IndicesGoRoundTrip) {
  SearchRequest request = small_request();
  request.width = SearchWidth::all;
  request.axes.push_back({"optimizer", {"adamw", "lion"}});
  const Space space(request);
  ASSERT_GT(space.settings(), 1U);
  ASSERT_EQ(space.depths(), 12U);  // none said, and 1 to 11 of gpt2's 12 layers
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t layout = random() % space.layouts(), setting = random() % space.settings(), depth = random() % space.depths();
    const std::uint64_t index = space.index(layout, setting, depth);
    EXPECT_EQ(space.layout_of(index), layout);
    EXPECT_EQ(space.setting_of(index), setting);
    EXPECT_EQ(space.depth_of(index), depth);
    EXPECT_LT(static_cast<double>(index), space.points());
  }
  std::set<std::string> distinct;
  for (std::uint64_t layout = 0; layout < space.layouts(); ++layout) {
    std::string text;
    for (const auto& [key, value] : space.layout_options(layout)) text += key + value + " ";
    distinct.insert(text);
  }
  EXPECT_EQ(distinct.size(), space.layouts());
}

/// A plan that trains something else is no better plan for what was asked.
TEST(Space, WhatIsTrainedIsOpenedByNameAlone) {
  for (const char* framework : {"megatron-core", "torchtitan", "deepspeed", "transformers"}) {
    SearchRequest request = small_request();
    request.base = {};
    set_options(request.base, {{"global_batch", "64"}, {"seq", "1024"}, {"framework", framework}});
    request.width = SearchWidth::all;
    for (const SearchAxis& axis : open_axes(request))
      for (const char* trained : {"precision", "optimizer", "loss", "task", "autocast", "param_dtype", "fp8_recipe", "base_weights",
                                  "global_batch", "seq", "lora"})
        EXPECT_NE(axis.key.substr(0, axis.key.find('.')), trained) << framework << " opens " << axis.key;
  }
}

/// Legality is judged per layout and per kind of layout and setting; resolve() judges the whole plan. They must not differ.
TEST(Legality, IsWhatResolveSays) {
  for (const char* framework : {"megatron-core", "torchtitan", "deepspeed", "transformers", "nemo"}) {
    SearchRequest request;
    request.model = load_model("llama-3.1-8b");
    request.cluster = parse_cluster("2x8xh100-sxm");
    set_options(request.base, {{"global_batch", "64"}, {"seq", "8192"}, {"framework", framework}});
    request.width = SearchWidth::all;
    request.axes = {{"precision", {"bf16", "fp16", "fp8"}}, {"optimizer", {"adamw", "sgdm", "lion"}}, {"loss", {"ce", "vocab-parallel cross entropy", "te"}}};
    const Space space(request);
    const SearchWatcher nobody;
    Watch watch(nobody);
    const Layouts layouts = find_layouts(space, request, watch);
    std::set<std::uint64_t> legal_layouts;
    for (const Layout& layout : layouts.legal) legal_layouts.insert(layout.raw);
    State state;
    const Screen screen(space, request, layouts, state);
    std::mt19937_64 random(7);
    for (int i = 0; i < 300 && !layouts.legal.empty(); ++i) {
      const Layout& layout = layouts.legal[random() % layouts.legal.size()];
      const std::uint64_t setting = random() % space.settings();
      bool resolves = true;
      try {
        (void)resolve(with_options(request, space.options(space.index(layout.raw, setting, 0))), request.model, request.cluster);
      } catch (const Error&) {
        resolves = false;
      }
      EXPECT_EQ(screen.legal(layout, setting, 0), resolves) << framework << " " << space.index(layout.raw, setting, 0);
    }
    for (int i = 0; i < 300; ++i) {  // layouts that were left out contradict something, or say what another says
      const std::uint64_t raw = random() % space.layouts();
      if (legal_layouts.count(raw) > 0) continue;
      try {
        const Strategy resolved = resolve(with_options(request, space.layout_options(raw)), request.model, request.cluster);
        EXPECT_TRUE(space.digit(raw, "vp", 1) != resolved.vp || !resolved.sequence_parallel.value_or(false)) << framework << " " << raw;
      } catch (const Error&) {
      }
    }
  }
}

TEST(Space, TooManyPointsAreRefusedWithTheirNumber) {
  SearchRequest request = small_request();
  for (const char* key : {"lora.alpha", "moe_imbalance", "ddp.bucket_cap_mb", "autograd_threads", "loss_chunks"})
    request.axes.push_back({key, parse_axis_values("1..4000/1", key)});
  EXPECT_THROW(search(request), Error);
}

TEST(PartOf, FillsWholeNodes) {
  const Cluster cluster = parse_cluster("4x8xh100-sxm");
  EXPECT_EQ(part_of(cluster, 4).gpus(), 4);
  EXPECT_EQ(part_of(cluster, 16).nodes, 2);
  EXPECT_THROW(part_of(cluster, 12), Error);
  EXPECT_THROW(part_of(cluster, 64), Error);
}

}  // namespace
}  // namespace plimsoll
