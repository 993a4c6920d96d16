// Searches against brute force, and their answers.
#include "plimsoll/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "estimate/read_programs.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"
#include "search/comparison.hpp"
#include "search/legality.hpp"
#include "search/rounds.hpp"
#include "search/screen.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using namespace searching;

SearchRequest request_of(const std::string& model, const std::string& cluster, const std::vector<std::pair<std::string, std::string>>& base,
                         const std::vector<SearchAxis>& axes) {
  SearchRequest request;
  request.model = load_model(model);
  request.cluster = parse_cluster(cluster);
  set_options(request.base, base);
  request.axes = axes;
  request.threads = 2;
  return request;
}

struct Brute {
  std::uint64_t index;
  double seconds, per_token;
};

/// Every legal point of a space estimated in full: those that fit, fastest first (tokens of a second, where their batches differ).
std::vector<Brute> brute_force(const SearchRequest& request) {
  const Space space(request);
  std::vector<Brute> found;
  for (std::uint64_t layout = 0; layout < space.layouts(); ++layout)
    for (std::uint64_t setting = 0; setting < space.settings(); ++setting) {
      const std::uint64_t index = space.index(layout, setting, 0);
      try {
        const Strategy strategy = with_options(request, space.options(index));
        const Strategy resolved = resolve(strategy, request.model, request.cluster);
        if (space.digit(layout, "vp", resolved.vp) != resolved.vp ||
            strategy.sequence_parallel.value_or(*resolved.sequence_parallel) != *resolved.sequence_parallel)
          continue;
        const Report report = estimate(request.model, request.cluster, strategy);
        if (report.verdict != Verdict::does_not_fit && was_played(report))
          found.push_back({index, report.time.step_seconds.expected,
                           report.time.step_seconds.expected / static_cast<double>(resolved.global_batch * resolved.seq_len)});
      } catch (const Error&) {
      }
    }
  std::sort(found.begin(), found.end(),
            [](const Brute& a, const Brute& b) { return std::pair(a.per_token, a.index) < std::pair(b.per_token, b.index); });
  return found;
}

void expect_brute_force(const SearchRequest& request) {
  const std::vector<Brute> all = brute_force(request);
  const SearchResult result = search(request);
  ASSERT_TRUE(result.complete);
  ASSERT_EQ(result.best.size(), std::min<std::size_t>(request.top, all.size()));
  for (std::size_t i = 0; i < result.best.size(); ++i) EXPECT_EQ(result.best[i].seconds(), all[i].seconds) << i;
}

/// No plan of the full top ten is dropped: a space whose every point is estimated gives the same ten.
TEST(Search, FindsWhatBruteForceFindsUnderMegatron) {
  expect_brute_force(request_of("llama-3.1-8b", "1x8xh100-sxm", {{"global_batch", "32"}, {"seq", "4096"}, {"framework", "megatron-core"}},
                                {{"tp", {"1", "2", "4"}},
                                 {"pp", {"1", "2", "4"}},
                                 {"vp", {"1", "2", "4"}},
                                 {"micro_batch", {"1", "2", "4"}},
                                 {"data_parallel", {"ddp", "megatron-distopt"}},
                                 {"sequence_parallel", {"true"}},
                                 {"recompute", {"none", "full"}}}));
}

TEST(Search, FindsWhatBruteForceFindsUnderTorchTitan) {
  expect_brute_force(request_of("llama-3.1-8b", "1x8xh100-sxm",
                                {{"global_batch", "32"}, {"seq", "4096"}, {"framework", "torchtitan"}, {"data_parallel", "fsdp2"}},
                                {{"tp", {"1", "2"}},
                                 {"pp", {"1", "2", "4"}},
                                 {"vp", {"1", "2"}},
                                 {"micro_batch", {"1", "2"}},
                                 {"recompute", {"none", "selective-ac-op", "full"}}}));
}

TEST(Search, FindsWhatBruteForceFindsUnderDeepSpeedAndFsdp) {
  expect_brute_force(request_of("qwen2.5-0.5b", "1x8xl4", {{"global_batch", "64"}, {"seq", "2048"}},
                                {{"framework", {"transformers", "deepspeed"}},
                                 {"data_parallel", {"ddp", "fsdp2", "zero1", "zero2", "zero3"}},
                                 {"micro_batch", {"1", "2", "4", "8"}},
                                 {"recompute", {"none", "full"}}}));
}

/// Where no global batch is said a step of twice the tokens may take longer and yet be the faster plan: seconds of a token decide.
TEST(Search, FindsWhatBruteForceFindsWhereTheBatchIsFree) {
  const SearchRequest request = request_of("gpt2", "1x8xh100-sxm", {{"seq", "1024"}, {"framework", "megatron-core"}},
                                           {{"tp", {"1", "2"}},
                                            {"pp", {"1", "2"}},
                                            {"vp", {"1"}},
                                            {"micro_batch", {"1", "2", "4"}},
                                            {"data_parallel", {"ddp", "megatron-distopt"}},
                                            {"sequence_parallel", {"false"}},
                                            {"recompute", {"none", "full"}}});
  ASSERT_TRUE(free_batch(request));
  expect_brute_force(request);
  const SearchResult result = search(request);
  const EstimatedPlan& best = result.best.front();
  EXPECT_TRUE(result.free_batch);
  EXPECT_TRUE(std::any_of(result.best.begin(), result.best.end(), [&](const EstimatedPlan& plan) {
    return plan.seconds() < best.seconds();
  })) << "no plan has a shorter step: nothing is shown";
  for (const EstimatedPlan& plan : result.best) {
    EXPECT_LE(plan.tokens_per_second(), best.tokens_per_second());
    EXPECT_NEAR(plan.tokens_per_second(), plan.report.time.tokens_per_second_per_gpu * 8, 1e-6 * plan.tokens_per_second());
  }
  for (const EstimatedPlan& a : result.front)
    for (const EstimatedPlan& b : result.front)
      EXPECT_FALSE(b.tokens_per_second() > a.tokens_per_second() && b.headroom() > a.headroom()) << a.command << " " << b.command;
  EXPECT_NE(to_text(result).find("tokens per second decide"), std::string::npos);
  EXPECT_NE(to_html(document_of(result)).find("tokens per second decide"), std::string::npos);
  const JsonDocument json = JsonDocument::parse(to_json(result), "search.json");
  EXPECT_TRUE(json.root()["free_batch"].boolean());
  EXPECT_EQ(json.root()["top"].at(0)["tokens_per_step"].integer(1, INT64_MAX), best.plan.tokens);
}

TEST(Search, BatchesAreFreeWhereNoneIsSaidOrSeveralAre) {
  const std::vector<SearchAxis> micro{{"micro_batch", {"1", "2"}}};
  EXPECT_TRUE(free_batch(request_of("gpt2", "1x8xh100-sxm", {{"seq", "1024"}}, micro)));
  EXPECT_FALSE(free_batch(request_of("gpt2", "1x8xh100-sxm", {{"seq", "1024"}, {"global_batch", "64"}}, micro)));
  EXPECT_TRUE(free_batch(request_of("gpt2", "1x8xh100-sxm", {{"seq", "1024"}}, {{"global_batch", {"64", "128"}}})));
  EXPECT_TRUE(free_batch(request_of("gpt2", "1x8xh100-sxm", {{"global_batch", "64"}}, {{"seq", {"512", "1024"}}})));
}

/// 24 ms for 16 tokens are 6 s a million less than 20 ms for 8: what one loses to the other is for as many tokens.
TEST(Comparison, IsForAsManyTokens) {
  const Steps small{0.020, 8, 0.05, {{"compute", 0.012}, {"host", 0.008}}}, large{0.024, 16, 0.05, {{"compute", 0.022}, {"host", 0.002}}};
  const std::vector<Loss> lost = losses(small, large);
  ASSERT_EQ(lost.size(), 2U);
  EXPECT_EQ(lost[0].part, "host");  // twice 8 ms instead of 2
  EXPECT_NEAR(lost[0].seconds, 0.014, 1e-12);
  EXPECT_NEAR(lost[1].seconds, 0.002, 1e-12);
  EXPECT_FALSE(equal_within_error(small, large));
  EXPECT_TRUE(equal_within_error({0.0122, 8, 0.05, {}}, large));
}

/// DeepSeek's first layer is dense, every sixth of Gemma 3 sees all positions: instances hold whole patterns.
TEST(Search, FindsWhatBruteForceFindsWhereLayersDiffer) {
  expect_brute_force(request_of("deepseek-v2-lite", "1x8xh100-sxm",
                                {{"global_batch", "32"}, {"seq", "2048"}, {"framework", "megatron-core"}},
                                {{"ep", {"1", "4", "8"}},
                                 {"micro_batch", {"1", "2", "4"}},
                                 {"data_parallel", {"megatron-distopt", "megatron-fsdp"}},
                                 {"recompute", {"none", "full"}}}));
  expect_brute_force(request_of("gemma-3-1b", "1x8xh100-sxm", {{"global_batch", "32"}, {"seq", "2048"}, {"framework", "transformers"}},
                                {{"data_parallel", {"ddp", "fsdp2"}}, {"micro_batch", {"1", "2", "4"}}, {"recompute", {"none", "full"}}}));
}

/// Composed / estimated − 1 of plans drawn at random lies in the band that hardware/screening.json states, and the least that their layers
/// take is no more than they do.
TEST(Screen, KeepsItsBoundOverRandomPlans) {
  struct Case {
    const char *model, *cluster, *framework, *seq;
  };
  for (const Case& each :
       {Case{"gpt2-xl", "2x8xa100-80gb-sxm", "megatron-core", "1024"}, Case{"llama-3.1-8b", "2x8xh100-sxm", "nemo", "4096"},
        Case{"llama-3.1-8b", "2x8xh100-sxm", "torchtitan", "4096"}, Case{"qwen2.5-0.5b", "1x8xl4", "deepspeed", "2048"},
        Case{"llama-3.1-8b", "1x8xmi300x", "transformers", "4096"}, Case{"gpt-oss-20b", "2x8xh100-sxm", "megatron-core", "4096"},
        Case{"gpt-oss-20b", "2x8xh100-sxm", "torchtitan", "4096"}, Case{"gemma-3-1b", "1x8xh100-sxm", "transformers", "4096"}}) {
    const SearchRequest request =
        request_of(each.model, each.cluster, {{"global_batch", "64"}, {"seq", each.seq}, {"framework", each.framework}}, {});
    const Space space(request);
    double most_of_least = 0;
    int compared = 0;
    const SearchWatcher nobody;
    Watch watch(nobody);
    const Layouts layouts = find_layouts(space, request, watch);
    State state;
    const Summarizer summarizer(space, request, state);
    const Screen screen(space, request, layouts, state);
    const Least least(screen, space, request, layouts, watch);
    const ScreeningBound least_bound = screening_bound(kLeast);
    std::mt19937_64 random(11);
    for (int drawn = 0; drawn < 12;) {
      const auto number = static_cast<std::uint32_t>(random() % layouts.legal.size());
      const Layout& layout = layouts.legal[number];
      const std::uint64_t setting = random() % space.settings();
      if (!screen.legal(layout, setting, 0)) continue;
      ++drawn;
      const Summary summary = summarizer.summary(layouts.rows[layout.row], setting);
      const Tail tail = layout.tail > 0 ? summarizer.tail(layouts.tails[layout.tail - 1], layouts.rows[layout.row].dp, setting) : Tail{};
      if (!summary.known || !tail.known) continue;
      const Report report =
          estimate(request.model, request.cluster, with_options(request, space.options(space.index(layout.raw, setting, 0))));
      const ScreeningBound bound = screen.bound(number, setting);
      const double seconds = composed_seconds(summary, tail, layout), bytes = composed_bytes(summary, tail, layout);
      const std::string what = std::string(each.framework) + " " + std::to_string(space.index(layout.raw, setting, 0));
      EXPECT_LE(bound.least_seconds(seconds), report.time.step_seconds.expected) << what;
      EXPECT_GE(bound.most_seconds(seconds), report.time.step_seconds.expected) << what;
      EXPECT_LE(bound.least_bytes(bytes), report.worst_rank().memory.device.expected) << what;
      EXPECT_GE(bound.most_bytes(bytes), report.worst_rank().memory.device.expected) << what;
      const Least::Of at_least = least.plan(number, setting);
      EXPECT_LE(least_bound.least_seconds(at_least.seconds), report.time.step_seconds.expected) << what;
      EXPECT_LE(least_bound.least_bytes(at_least.bytes), report.worst_rank().memory.device.expected) << what;
      ++compared;
      most_of_least = std::max(most_of_least, at_least.seconds / report.time.step_seconds.expected);
    }
    if (compared > 0) {
      EXPECT_GT(most_of_least, 0.5) << each.model << " " << each.framework << ": the least tells nothing";
    }
  }
}

/// Eight stages of 2 1 1 1 | 1 1 1 2 layers on four ranks, a second a layer: the busiest ranks hold three, and a micro-batch that fills or
/// drains the pipeline passes two chunks whose fullest stage has two. As many do as there are ranks, or as there are.
TEST(Screen, ChunksPassAsSlowlyAsTheirFullestStage) {
  Summary summary;
  summary.micro_batch.per_layer = 1;
  Layout layout;
  layout.stages = 4, layout.chunks = 2, layout.micro_batches = 8;
  layout.first = layout.last = 1.5, layout.inner = 1;
  layout.waves = 2, layout.last_wave = 1, layout.head_chunk = 2;
  EXPECT_DOUBLE_EQ(composed_seconds(summary, {}, layout), 8 * 3 + 4);
  layout.micro_batches = 2;
  EXPECT_DOUBLE_EQ(composed_seconds(summary, {}, layout), 2 * 3 + 2);
  layout.first = layout.last = layout.waves = layout.head_chunk = 1;  // all equal: nothing is late
  EXPECT_DOUBLE_EQ(composed_seconds(summary, {}, layout), 2 * 2);
}

/// Optimizers, 16-bit types and losses are screened by differences that were measured once: their plans lie in the same band.
TEST(Screen, KeepsItsBoundOverSeparatedSettings) {
  SearchRequest request =
      request_of("gpt2-xl", "2x8xa100-80gb-sxm", {{"global_batch", "64"}, {"seq", "1024"}, {"framework", "megatron-core"}}, {});
  request.width = SearchWidth::all;
  request.axes.push_back({"precision", {"bf16", "fp16"}});
  request.axes.push_back({"optimizer", {"adamw", "sgdm", "lion"}});
  request.axes.push_back({"loss", {"ce", "vocab-parallel cross entropy", "te"}});
  request.sample = 400;
  const Space space(request);
  const SearchWatcher nobody;
  Watch watch(nobody);
  const Layouts layouts = find_layouts(space, request, watch);
  State state;
  Screen screen(space, request, layouts, state);
  screen.summarize(watch);
  std::mt19937_64 random(5);
  for (int drawn = 0; drawn < 40;) {
    const auto number = static_cast<std::uint32_t>(random() % layouts.legal.size());
    const std::uint64_t setting = random() % space.settings();
    if (!screen.legal(layouts.legal[number], setting, 0) || screen.hopeless(number, setting)) continue;
    ++drawn;
    const Screened plan = screen.screened(number, setting, 0);
    if (!plan.known) continue;
    const Report report = estimate(request.model, request.cluster, with_options(request, space.options(plan.index)));
    const ScreeningBound bound = screen.bound(plan);
    const double device = report.worst_rank().memory.device.expected;
    EXPECT_LE(bound.least_seconds(plan.seconds), report.time.step_seconds.expected) << plan.index;
    EXPECT_GE(bound.most_seconds(plan.seconds), report.time.step_seconds.expected) << plan.index;
    EXPECT_LE(bound.least_bytes(plan.bytes), device) << plan.index;
    EXPECT_GE(bound.most_bytes(plan.bytes), device) << plan.index;
  }
}

/// Summaries that are not made are those of plans that cannot matter: the ten, the front, and the example of what is too large are those of
/// a search that makes all of them (as one does that lists its candidates).
TEST(Search, AnswersAsIfEverySummaryWereMade) {
  for (SearchRequest request :
       {request_of("gpt2-xl", "2x8xa100-40gb", {{"global_batch", "64"}, {"seq", "1024"}, {"framework", "megatron-core"}},
                   {{"tp", {"1", "5"}}, {"pp", {"1", "2", "4"}}, {"micro_batch", {"1", "2", "4"}}}),
        request_of("qwen2.5-0.5b", "1x8xl4", {{"seq", "2048"}, {"framework", "transformers"}}, {})}) {
    const SearchResult some = search(request);
    request.keep_candidates = 1;
    const SearchResult all = search(request);
    ASSERT_EQ(some.best.size(), all.best.size());
    for (std::size_t i = 0; i < all.best.size(); ++i) EXPECT_EQ(some.best[i].plan.index, all.best[i].plan.index) << i;
    ASSERT_EQ(some.front.size(), all.front.size());
    for (std::size_t i = 0; i < all.front.size(); ++i) EXPECT_EQ(some.front[i].plan.index, all.front[i].plan.index) << i;
    EXPECT_EQ(some.legal, all.legal);
  }
}

/// A run that takes longer than what would still matter is known by its time: that of the estimate, to the bit. One that is quick enough is
/// estimated as ever, and one whose first rank does not fit tells no time. Of a single rank there is nothing to leave out.
TEST(Search, WhatIsTooSlowIsKnownByItsTime) {
  const Model model = load_model("gpt2-xl");
  const Cluster cluster = parse_cluster("1x8xa100-40gb");
  for (const auto& [pp, micro_batch] : {std::pair<std::string, std::string>("4", "1"), {"1", "1"}, {"4", "64"}}) {
    Strategy strategy;
    set_options(strategy, {{"framework", "megatron-core"}, {"pp", pp}, {"micro_batch", micro_batch}, {"global_batch", "128"}, {"seq", "1024"}});
    const Report report = estimate(model, cluster, strategy);
    const double seconds = report.time.step_seconds.expected;
    const estimation::Sought slow = estimation::estimate_sought(model, cluster, strategy, 0.999 * seconds);
    const estimation::Sought quick = estimation::estimate_sought(model, cluster, strategy, seconds);
    if (micro_batch == "64") {
      ASSERT_EQ(report.verdict, Verdict::does_not_fit);
      EXPECT_FALSE(slow.report || slow.slow_step || quick.report || quick.slow_step);
      continue;
    }
    ASSERT_NE(report.verdict, Verdict::does_not_fit);
    ASSERT_TRUE(quick.report) << pp;
    EXPECT_EQ(to_json(*quick.report), to_json(report));
    if (pp == "1") {
      EXPECT_TRUE(slow.report);
    } else {
      EXPECT_FALSE(slow.report);
      EXPECT_EQ(slow.slow_step, seconds);
    }
  }
}

/// The best of a space is no worse than that of any part of it, and not either where few may be estimated in full: of an optimizer on the
/// host so little is sure that, where its plans came first, they took all that there was.
TEST(Search, ALargerSpaceHasNoWorseBest) {
  const std::vector<SearchAxis> axes{{"framework", {"transformers", "deepspeed"}},
                                     {"data_parallel", {"fsdp2", "zero2", "zero3"}},
                                     {"micro_batch", {"2", "4", "8"}},
                                     {"recompute", {"none", "full"}},
                                     {"offload", {"none", "optimizer", "activations"}}};
  const auto best_of = [&](const std::vector<SearchAxis>& some, std::size_t most_estimates) {
    SearchRequest request = request_of("qwen2.5-0.5b", "1x8xl4", {{"global_batch", "64"}, {"seq", "2048"}}, some);
    request.most_estimates = most_estimates;
    const SearchResult result = search(request);
    return result.best.empty() ? 1e30 : result.best.front().seconds();
  };
  const double whole = best_of(axes, 2000), hurried = best_of(axes, 20);
  EXPECT_EQ(hurried, whole);
  std::mt19937_64 random(3);
  for (int drawn = 0; drawn < 4; ++drawn) {
    std::vector<SearchAxis> part = axes;
    for (SearchAxis& axis : part) {
      std::shuffle(axis.values.begin(), axis.values.end(), random);
      axis.values.resize(1 + random() % axis.values.size());
    }
    try {
      EXPECT_LE(whole, best_of(part, 2000)) << drawn;
    } catch (const Error&) {  // a part without a legal plan
    }
  }
}

/// Where nothing fits the nearest is named, and what beyond the axes would make it fit.
TEST(Search, WhereNothingFitsTheNearestIsNamed) {
  const SearchRequest request =
      request_of("llama-3.1-8b", "1x8xl4", {{"global_batch", "8"}, {"seq", "4096"}, {"framework", "transformers"}},
                 {{"data_parallel", {"ddp", "fsdp2"}}, {"micro_batch", {"1"}}, {"recompute", {"none", "full"}}});
  const SearchResult result = search(request);
  ASSERT_TRUE(result.best.empty());
  const SearchRejection& rejection = result.rejected.at("does not fit");
  const std::vector<std::pair<std::string, std::string>> nearest{{"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"recompute", "full"}};
  EXPECT_EQ(rejection.nearest.options, nearest);
  EXPECT_NE(to_text(result).find("the nearest needs"), std::string::npos);
  EXPECT_NE(rejection.rescue.find("would fit as plimsoll estimate llama-3.1-8b"), std::string::npos) << rejection.rescue;
}

SearchRequest small_search() {
  return request_of("gpt2-xl", "1x8xa100-40gb",
                    {{"global_batch", "64"}, {"seq", "1024"}, {"framework", "megatron-core"}, {"sequence_parallel", "false"}},
                    {{"tp", {"1", "5"}}, {"pp", {"1", "2", "4"}}, {"micro_batch", {"1", "2", "4", "8"}}, {"recompute", {"none", "full"}}});
}

TEST(Search, TellsThreadsApartByNothing) {
  SearchRequest request = small_search();
  request.threads = 1;
  const SearchResult one = search(request);
  request.threads = 3;
  const SearchResult three = search(request);
  ASSERT_EQ(one.best.size(), three.best.size());
  for (std::size_t i = 0; i < one.best.size(); ++i) EXPECT_EQ(one.best[i].plan.index, three.best[i].plan.index);
  ASSERT_EQ(one.front.size(), three.front.size());
  for (std::size_t i = 0; i < one.front.size(); ++i) EXPECT_EQ(one.front[i].plan.index, three.front[i].plan.index);
  EXPECT_EQ(one.legal, three.legal);
}

/// A plan's command line is that plan.
TEST(Search, CommandsReproduceTheirPlans) {
  const SearchResult result = search(small_search());
  ASSERT_FALSE(result.best.empty());
  EXPECT_EQ(result.best.front().command.rfind("plimsoll estimate gpt2-xl --on ", 0), 0U);
  EXPECT_NE(result.best.front().command.find("--global-batch 64"), std::string::npos);
  EXPECT_NE(result.best.front().command.find("--tp "), std::string::npos);
}

TEST(Search, NoPlanOfTheFrontIsBeaten) {
  const SearchResult result = search(small_search());
  ASSERT_FALSE(result.front.empty());
  for (const EstimatedPlan& a : result.front)
    for (const EstimatedPlan& b : result.front) {
      const bool beaten = b.seconds() < a.seconds() && b.headroom() > a.headroom() && b.plan.gpus <= a.plan.gpus;
      EXPECT_FALSE(beaten);
    }
  EXPECT_EQ(result.front.front().plan.index, result.best.front().plan.index);
}

std::vector<std::int64_t> indices(const std::string& json, const char* list) {
  const JsonDocument document = JsonDocument::parse(json, "search.json");
  std::vector<std::int64_t> found;
  for (const JsonValue& plan : document.root()[list].elements()) found.push_back(plan["index"].integer(0, INT64_MAX));
  return found;
}

/// Shards put together answer as the whole does.
TEST(Merge, AnswersTheSameWhateverTheSplit) {
  SearchRequest request = small_search();
  const std::string whole = to_json(search(request));
  for (const std::uint64_t shards : {2U, 3U}) {
    std::vector<std::pair<std::string, std::string>> files;
    for (std::uint64_t shard = 0; shard < shards; ++shard) {
      request.shard = shard;
      request.shards = shards;
      files.emplace_back("shard" + std::to_string(shard), to_json(search(request)));
    }
    const std::string merged = merge_searches(files);
    EXPECT_EQ(indices(merged, "top"), indices(whole, "top"));
    EXPECT_EQ(indices(merged, "front"), indices(whole, "front"));
    const JsonDocument one = JsonDocument::parse(whole, "whole"), many = JsonDocument::parse(merged, "merged");
    // How many were left out by the least that they take depends on what a shard found: the whole's best may be faster.
    EXPECT_EQ(one.root()["legal"].integer(0, INT64_MAX), many.root()["legal"].integer(0, INT64_MAX));
    EXPECT_TRUE(many.root()["complete"].boolean());
    // The example of what does not fit is the fastest such plan, whichever shard had it.
    const auto of_one = one.root()["rescues"].find("does not fit"), of_many = many.root()["rescues"].find("does not fit");
    ASSERT_TRUE(of_one && of_many);
    EXPECT_EQ((*of_many)["nearest_seconds"].number(0, 1e9), (*of_one)["nearest_seconds"].number(0, 1e9));
    files.pop_back();
    EXPECT_NE(merge_searches(files).find("\"complete\": false"), std::string::npos);
    files.push_back(files.front());
    EXPECT_THROW(merge_searches(files), Error);
  }
}

TEST(Merge, OfAnotherSearchIsRefused) {
  SearchRequest request = small_search();
  const std::string one = to_json(search(request));
  request.goal = SearchGoal::gpus;
  EXPECT_THROW(merge_searches({{"a", one}, {"b", to_json(search(request))}}), Error);
  EXPECT_THROW(merge_searches({{"a", "{}"}}), Error);
  EXPECT_THROW(merge_searches({}), Error);
}

TEST(Search, FewestGpusAreFound) {
  SearchRequest request = request_of("llama-3.1-8b", "2x8xh100-sxm",
                                     {{"global_batch", "32"},
                                      {"seq", "4096"},
                                      {"framework", "megatron-core"},
                                      {"micro_batch", "1"},
                                      {"vp", "1"},
                                      {"data_parallel", "megatron-distopt"},
                                      {"sequence_parallel", "true"}},
                                     {{"tp", {"2"}}, {"pp", {"1", "2"}}, {"recompute", {"none", "full"}}});
  request.gpus = {2, 4, 8, 16};
  request.goal = SearchGoal::gpus;
  const SearchResult result = search(request);
  ASSERT_FALSE(result.best.empty());
  for (const std::int64_t gpus : request.gpus) {  // no smaller cluster fits
    if (gpus >= result.best.front().plan.gpus) break;
    request.gpus = {gpus};
    EXPECT_TRUE(search(request).best.empty()) << gpus;
  }
}

TEST(Search, WhatNobodyCanRunIsAnError) {
  SearchRequest request = small_search();
  request.axes = {{"tp", {"3"}}, {"pp", {"7"}}};
  EXPECT_THROW(search(request), Error);
}

/// The watcher's word ends a search, which then answers with what it has.
TEST(Search, CanBeStopped) {
  const SearchResult result = search(small_search(), [](const SearchProgress&) { return false; });
  EXPECT_FALSE(result.complete);
}

/// Whenever a search is stopped, what it leaves lets the next one answer as if it had not been, and what was found out is not done again.
TEST(Search, GoesOnWhereItWasStopped) {
  SearchRequest request = small_search();
  request.axes = {{"tp", {"1"}},
                  {"pp", {"1", "2"}},
                  {"micro_batch", {"1", "2"}},
                  {"data_parallel", {"ddp"}},
                  {"vp", {"1"}},
                  {"recompute", {"none", "full"}}};
  request.threads = 1;
  const SearchResult whole = search(request);
  EXPECT_TRUE(whole.state.empty());
  for (const char* phase : {"layouts", "summaries", "estimates"}) {
    std::uint64_t looks = 0;
    const SearchResult stopped = search(request, [&](const SearchProgress& now) { return std::string(now.phase) != phase || ++looks < 3; });
    ASSERT_FALSE(stopped.state.empty()) << phase;
    SearchRequest rest = request;
    rest.resume = stopped.state;
    const SearchResult resumed = search(rest);
    ASSERT_EQ(resumed.best.size(), whole.best.size());
    for (std::size_t i = 0; i < whole.best.size(); ++i) {
      EXPECT_EQ(resumed.best[i].plan.index, whole.best[i].plan.index) << phase;
      EXPECT_EQ(resumed.best[i].seconds(), whole.best[i].seconds()) << phase;
    }
    EXPECT_EQ(resumed.probes + stopped.probes, whole.probes) << phase;
    EXPECT_TRUE(resumed.complete);
  }
}

TEST(Search, StatesOfAnotherSearchAreRefused) {
  SearchRequest request = small_search();
  const std::string state = search(request, [](const SearchProgress&) { return false; }).state;
  request.resume = state;
  request.shards = 2;
  EXPECT_THROW(search(request), Error);
  request = small_search();
  request.axes[0].values = {"1"};
  request.resume = state;
  EXPECT_THROW(search(request), Error);
  for (const char* wrong : {"{}", "[1", R"({"schema": "plimsoll/search/1"})"}) {
    request.resume = wrong;
    EXPECT_THROW(search(request), Error) << wrong;
  }
}

/// What one process prints for all is what one search would have.
TEST(Merge, IsAResultAgain) {
  SearchRequest request = small_search();
  const SearchResult whole = search(request);
  std::vector<std::pair<std::string, std::string>> files;
  for (request.shard = 0, request.shards = 2; request.shard < 2; ++request.shard) files.emplace_back("a shard", to_json(search(request)));
  const SearchResult again = result_of(request, merge_searches(files));
  ASSERT_EQ(again.best.size(), whole.best.size());
  for (std::size_t i = 0; i < whole.best.size(); ++i) {
    EXPECT_EQ(again.best[i].plan.index, whole.best[i].plan.index);
    EXPECT_EQ(again.best[i].command, whole.best[i].command);
  }
  // Each shard offers the fastest of its own for every sixteenth of the memory: the front may hold more than the whole's, and nothing
  // worse.
  for (const EstimatedPlan& plan : whole.front)
    EXPECT_TRUE(std::any_of(again.front.begin(), again.front.end(), [&](const EstimatedPlan& other) {
      return other.seconds() <= plan.seconds() && other.headroom() >= plan.headroom() && other.plan.gpus <= plan.plan.gpus;
    })) << plan.plan.index;
  for (const auto& [reason, rejection] : whole.rejected) {
    const bool by_what_was_found =
        reason == "does not fit" || reason == "refused by the estimate" || reason.rfind("slower, by the least", 0) == 0;
    if (!by_what_was_found) {
      EXPECT_EQ(again.rejected.at(reason).count, rejection.count) << reason;
    }
  }
}

/// Runners-up are compared with the best of all shards: theirs were others.
TEST(Merge, ComparesWithTheBestOfAll) {
  SearchRequest request = small_search();
  const JsonDocument whole = JsonDocument::parse(to_json(search(request)), "whole");
  std::vector<std::pair<std::string, std::string>> files;
  for (request.shard = 0, request.shards = 3; request.shard < 3; ++request.shard) files.emplace_back("a shard", to_json(search(request)));
  const JsonDocument merged = JsonDocument::parse(merge_searches(files), "merged");
  for (std::size_t i = 1; i < whole.root()["top"].size(); ++i) {
    const JsonValue one = whole.root()["top"].at(i), other = merged.root()["top"].at(i);
    EXPECT_EQ(one["equal_within_error"].boolean(), other["equal_within_error"].boolean()) << i;
    EXPECT_EQ(one.has("deciding_experiment"), other.has("deciding_experiment")) << i;
  }
  EXPECT_FALSE(merged.root()["top"].at(0).has("equal_within_error"));
}

TEST(Search, RejectedAreCountedWithARescue) {
  SearchRequest request =
      request_of("llama-3.1-8b", "1x8xa100-40gb",
                 {{"global_batch", "64"}, {"seq", "8192"}, {"framework", "megatron-core"}, {"sequence_parallel", "true"}, {"vp", "1"}},
                 {{"tp", {"2", "4", "8", "16"}},
                  {"pp", {"1"}},
                  {"micro_batch", {"1", "4"}},
                  {"data_parallel", {"megatron-distopt"}},
                  {"recompute", {"none", "full"}}});
  const SearchResult result = search(request);
  ASSERT_TRUE(result.rejected.count("does not fit"));
  EXPECT_GT(result.rejected.at("does not fit").count, 0U);
  EXPECT_NE(result.rejected.at("does not fit").rescue.find("--"), std::string::npos);
  const Document document = document_of(result);
  const std::string html = to_html(document), json = to_json(result);
  EXPECT_EQ(document.tables.back().rows.size(), result.rejected.size());
  EXPECT_EQ(document.tables.front().rows.size(), result.best.size());
  EXPECT_NE(html.find("\"front\":{\"time\":\"a step\""), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);  // needs nothing else
  EXPECT_NE(json.find("\"schema\": \"plimsoll/search/1\""), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
