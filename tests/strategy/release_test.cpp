// Releases are values: read in one place, ordered, and refused where a text is none.
#include "plimsoll/release.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "plimsoll/error.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

Release release(const std::string& text) {
  const std::optional<Release> parsed = Release::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(Release());
}

TEST(Release, IsNumbersOrADate) {
  for (const char* text : {"4.51.3", "25.04", "26.02.01", "0.0.4", "5", "2024-12-18", "2021-04", "1.1.0.70000"})
    EXPECT_EQ(release(text).text(), text);
}

// What orders nothing is read and left out: marks before the numbers, pre-releases, builds.
TEST(Release, LeavesOutWhatOrdersNothing) {
  EXPECT_EQ(release("v2.4").text(), "2.4");
  EXPECT_EQ(release("core_v0.16.1").text(), "0.16.1");
  EXPECT_EQ(release("2.15.0+cu132"), release("2.15"));
  for (const char* text : {"2.8.0a0+5228986c39", "2.8rc1", "2.8.0-47", "2.8.0.post1", "2.8.0.rc0.beta"})
    EXPECT_EQ(release(text), release("2.8")) << text;
}

TEST(Release, RefusesWhatIsNone) {
  for (const char* text : {"", "banana", "9.9.x9", "4.", ".4", "4..5", "v", "6243040", "820504e", "2024-13", "2024-1", "2024-12-32", "1.2+", "-1.2",
                           "1.2 3", "4.51.3x", "999999.1", "1.2.3rc1junk"})
    EXPECT_FALSE(Release::parse(text)) << text;
  EXPECT_FALSE(Release::parse(std::string(1000, '1')));
}

// Any text of digits and dots that is a release is printed as it was spelled, and bytes of any kind never crash the reader.
TEST(Release, RoundTripsAndTakesAnyBytes) {
  std::mt19937 draw(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = std::to_string(draw() % 100);
    for (unsigned part = draw() % 3 + 1; part > 0; --part) text += "." + std::to_string(draw() % 1000);
    EXPECT_EQ(release(text).text(), text);
    EXPECT_EQ(release(release(text).text()), release(text));
  }
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (unsigned length = draw() % 12; length > 0; --length) text += "0123456789.-+vabrc_ \x80\n"[draw() % 22];
    if (const std::optional<Release> parsed = Release::parse(text)) {
      EXPECT_EQ(release(parsed->text()), *parsed) << text;
    }
  }
}

// A nightly has its day besides its numbers.
TEST(Release, OfANightlyHasItsDay) {
  const Release nightly = release("2.8.0.dev20251001+rocm7.0.0.git64359f59");
  EXPECT_EQ(nightly.text(), "2.8.0");
  EXPECT_EQ(nightly.date(), 20251001);
  EXPECT_EQ(release("20250811").text(), "2025-08-11");
}

// Number by number, not letter by letter; a total order.
TEST(Release, Compares) {
  const std::vector<std::string> ordered = {"0.9", "4.9", "4.9.1", "4.33.1", "4.51", "5.0.0", "5.17", "26.04.01"};
  for (std::size_t i = 0; i < ordered.size(); ++i)
    for (std::size_t j = 0; j < ordered.size(); ++j) EXPECT_EQ(release(ordered[i]) < release(ordered[j]), i < j);
  EXPECT_EQ(release("4.45"), release("4.45.0"));
  EXPECT_TRUE(release("4.51.3").since(4, 51) && release("4.51.3").since(4, 51, 3) && !release("4.51.3").since(4, 52));
  EXPECT_TRUE(release("2024-12").since_date(2024, 12) && !release("2024-12").since_date(2024, 12, 16)) << "a month is its middle";
}

TEST(Packages, AreKnownByTheirNames) {
  for (const PackageFacts& facts : package_facts()) {
    EXPECT_EQ(facts.names.front(), name_of(facts.package));
    EXPECT_FALSE(facts.source.empty()) << facts.names.front();
    EXPECT_FALSE(facts.newest < facts.oldest) << facts.names.front();
    for (const auto* dates : {&facts.dates, &facts.released})
      for (std::size_t i = 1; i < dates->size(); ++i) {
        EXPECT_TRUE((*dates)[i - 1].first < (*dates)[i].first) << facts.names.front() << " " << (*dates)[i].first.text();
        EXPECT_LE((*dates)[i - 1].second, (*dates)[i].second) << facts.names.front() << " " << (*dates)[i].first.text();
      }
    const auto [package, parsed] = parse_release(facts.names.front(), facts.newest.text(), "test");
    EXPECT_EQ(parsed, facts.newest) << facts.names.front();
  }
}

std::string problem_of(const std::string& package, const std::string& text) {
  try {
    parse_release(package, text, "--release");
  } catch (const Error& error) {
    return error.where() + ": " + error.message() + " (" + error.hint() + ")";
  }
  return {};
}

TEST(Packages, RefuseWhatIsNoReleaseWithTheNearest) {
  EXPECT_EQ(problem_of("transformers", "banana"),
            "--release: 'banana' is no release of transformers (such as 5.23.0, the newest that was read, or a date (2025-06))");
  EXPECT_NE(problem_of("transformers", "4.51x").find("did you mean 4.51?"), std::string::npos) << problem_of("transformers", "4.51x");
  EXPECT_NE(problem_of("transfomers", "4.51").find("did you mean 'transformers'?"), std::string::npos);
  EXPECT_EQ(problem_of("liger_kernel", "0.5"), "") << "PyPI takes both";
}

// A release said by its date has the numbers of that time, and one said by numbers the date: torchtitan 0.1 was uploaded on 2025-06-18.
TEST(Packages, TellNumbersByDatesAndDatesByNumbers) {
  const Release dated = parse_release("torchtitan", "2025-09", "").second, numbered = parse_release("torchtitan", "0.1", "").second;
  EXPECT_TRUE(dated.since(0, 1) && !dated.since(0, 2));
  EXPECT_EQ(numbered.date(), 20250618);
  EXPECT_FALSE(parse_release("torchtitan", "2024-08", "").second.since(0, 1));
  EXPECT_EQ(release_out_on(Package::torch, 20250414).text(), "2.6");
  EXPECT_EQ(main_branch_on(Package::torch, 20250414).text(), "2.8");
}

// "nemo" is the library and its container, "pytorch" the library and NVIDIA's container: the numbers tell which.
TEST(Packages, AreToldApartByTheirNumbers) {
  EXPECT_EQ(parse_release("nemo", "2.1.0", "").first, Package::nemo);
  EXPECT_EQ(parse_release("nemo", "25.07", "").first, Package::nemo_container);
  EXPECT_EQ(parse_release("pytorch", "25.09", "").first, Package::pytorch_container);
  EXPECT_EQ(parse_release("torch", "2.9", "").first, Package::torch);
}

std::string prose(const std::string& text, const std::vector<Package>& own) {
  std::string all;
  auto found = releases_in(text, own);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [package, release] : found) all += (all.empty() ? "" : ", ") + std::string(name_of(package)) + " " + release.text();
  return all;
}

// The texts of measured rows.
TEST(Prose, NamesPackagesAndReleases) {
  const std::vector<Package> titan = {Package::torchtitan}, foundry = {Package::llm_foundry}, bridge = {Package::megatron_bridge},
                             nemo = {Package::nemo, Package::nemo_container, Package::pytorch_container}, tune = {Package::torchtune};
  EXPECT_EQ(prose("torchtitan 9dec370 (2024-12-26), torch 1963fc8 (2024-12-23), torchao eab345c", titan),
            "torch 2024-12-23, torchtitan 2024-12-26");
  EXPECT_EQ(prose("torchtitan 820504e, torch 38410cf9 (2025-06-14), torchao 6243040", titan), "torch 2025-06-14, torchtitan 2025-06-14");
  EXPECT_EQ(prose("torch 2.14.0a0+gitd9abf9e, torchao 0.18.0+gitcb76f29 (2026-08)", titan), "torch 2.14.0, torchtitan 2026-08, torchao 0.18.0");
  EXPECT_EQ(prose("2024-04", titan), "torchtitan 2024-04");
  EXPECT_EQ(prose("torch 2.9.0.dev20250811+rocm6.4, torchao 0.13.0, torchtitan 2c8b594", titan),
            "torch 2.9.0, torchtitan 2025-08-11, torchao 0.13.0");
  EXPECT_EQ(prose("2024-09-24 (table unchanged since)", tune), "torchtune 2024-09-24");
  EXPECT_EQ(prose("llm-foundry 2024-01 (torch 2.1.0+cu121)", foundry), "torch 2.1.0, llm-foundry 2024-01");
  EXPECT_EQ(prose("torch 1.13.1+cu117, llm-foundry v0.0.4", foundry), "torch 1.13.1, llm-foundry 0.0.4");
  EXPECT_EQ(prose("DeepSpeed 0.8.1, torch 1.13.1+rocm5.2 (hip 5.2.21151)", {Package::deepspeed}), "torch 1.13.1, deepspeed 0.8.1");
  EXPECT_EQ(prose("NeMo 26.04.01 (v0.4.1)", bridge), "nemo-container 26.04.01, megatron-bridge 0.4.1");
  EXPECT_EQ(prose("NeMo 24.07/24.09", nemo), "nemo-container 24.07");
  EXPECT_EQ(prose("NeMo container 24.09 (GPT-3: 24.05; Grok-1: dev)", nemo), "nemo-container 24.09");
  EXPECT_EQ(prose("NeMo container 25.04.x", nemo), "nemo-container 25.04");
  EXPECT_EQ(prose("NVIDIA NeMo Framework Release 25.04", nemo), "nemo-container 25.04");
  EXPECT_EQ(prose("PyTorch NVIDIA Release 23.09", nemo), "pytorch-container 23.09");
  EXPECT_EQ(prose("NeMo 2.1.0, Megatron-LM, PyTorch NVIDIA Release 25.09", nemo), "nemo 2.1.0, pytorch-container 25.09");
  EXPECT_EQ(prose("NGC Pytorch 24.09, NGC HugeCTR 24.09, NVIDIA Nemo 24.09", nemo), "nemo-container 24.09, pytorch-container 24.09");
  EXPECT_EQ(prose("PyTorch | 2.3.0+rocm5.7", nemo), "torch 2.3.0");
  EXPECT_EQ(prose("PyTorch 2.6.0, ROCm 6.4 | hipblaslt-ebc77085, flash-attn-cace3592, nemo-v2.0.0.rc0.beta", nemo),
            "torch 2.6.0, nemo 2.0.0, rocm 6.4");
  EXPECT_EQ(prose("LLMBoost 1.1.0 | 'python': '3.10', 'rocm': '6.4.0', 'rccl': '2.22.3'", nemo), "rocm 6.4.0");
  EXPECT_EQ(prose("23e00ed; TE 2.11.0; torch 2.10.0a0+nv26.01", {Package::megatron_lm}), "torch 2.10.0, transformer-engine 2.11.0");
  for (const char* none : {"NVIDIA NEMO", "banana", "9.9.x9", "DGL NVIDIA Release 24.09"}) EXPECT_EQ(prose(none, nemo), "") << none;
}

// Two keys that name one package must agree, and several packages are said together.
TEST(Strategy, SaysReleasesOfPackages) {
  const Strategy s = parse_strategy(R"({"releases": {"transformers": "5.17", "accelerate": "1.14"}, "torch": "2.11.0+cu130"})", "s.json");
  EXPECT_EQ(s.releases.text(), "torch 2.11.0, transformers 5.17, accelerate 1.14");
  EXPECT_TRUE(s.releases.says(Package::accelerate));
  EXPECT_THROW(parse_strategy(R"({"releases": {"torch": "2.10"}, "torch": "2.11"})", "s.json"), Error);
  EXPECT_NO_THROW(parse_strategy(R"({"releases": {"torch": "2.11.0"}, "torch": "2.11"})", "s.json"));
  EXPECT_THROW(parse_strategy(R"({"releases": {"torch": "banana"}})", "s.json"), Error);
  EXPECT_THROW(parse_strategy(R"({"releases": {"trochtitan": "0.1"}})", "s.json"), Error);
  EXPECT_THROW(parse_strategy(R"({"releases": "0.1"})", "s.json"), Error);
}

// One reader: no other source takes the text of a release apart. `framework_version` is read where its framework is known, and by the reader
// of rows; what a strategy, an export or a key of another program's file is called is no reading.
TEST(Sources, ReadReleasesInOnePlace) {
  namespace fs = std::filesystem;
  const std::vector<std::string> readers = {"src/strategy/options.cpp", "src/framework/resolve_releases.cpp", "src/formats/rows.cpp",
                                            "src/formats/export/export_run.cpp"};
  for (const char* room : {"estimate", "framework", "program", "formats", "strategy", "validate", "report", "search"}) {
    for (const auto& entry : fs::recursive_directory_iterator(std::string(PLIMSOLL_SOURCE_DIR "/src/") + room)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      const std::string path = fs::relative(entry.path(), PLIMSOLL_SOURCE_DIR).generic_string();
      const bool reader = std::find(readers.begin(), readers.end(), path) != readers.end();
      if (!reader) {
        EXPECT_EQ(text.str().find("framework_version"), std::string::npos) << path;
      }
      for (const char* scan : {"%3d.%3d", "%2d.%2d", "%4d-%2d"}) EXPECT_EQ(text.str().find(scan), std::string::npos) << path << ": " << scan;
    }
  }
}

}  // namespace
}  // namespace plimsoll
