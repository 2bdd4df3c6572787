// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"
#include "checkpoint/quantise_checkpoint.h"
#include "models/small_config_fixture.h"
#include "support/dense_model.h"
#include "support/test_data.h"
#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

namespace fs = std::filesystem;

// The output of `heddle inspect MODEL_DIR ...`.
std::string inspected(std::vector<std::string> arguments,
                      const fs::path& model = testing::repository_path("models/heddle-tiny")) {
  arguments.insert(arguments.begin(), model.string());
  ::testing::internal::CaptureStdout();
  const Outcome outcome = run_captured(kInspect, std::move(arguments));
  std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  return output;
}

TEST(Inspect, TellsWhatTheModelIsAndWhatMemoryItGets) {
  const Json report = Json::parse(inspected({"--json", "--kv-cache-dtype", "bfloat16"}));
  EXPECT_EQ(report["architecture"], "Qwen3NextForCausalLM");
  EXPECT_EQ(report["layers"], 8);
  EXPECT_EQ(report["kv_cache_dtype"], "bfloat16");
  EXPECT_EQ(report["weight_bytes"], report["parameters"].get<int64_t>() * 2);
  const Json& plan = report["memory_plan"];
  ASSERT_FALSE(plan.contains("error")) << plan;
  EXPECT_GT(plan["pool_bytes"], 0);
  EXPECT_EQ(plan["kv_tokens"].get<int64_t>() % plan["page_size"].get<int64_t>(), 0);
  EXPECT_LE(plan["kv_tokens"].get<int64_t>() * report["kv_bytes_per_token"].get<int64_t>(),
            plan["pool_bytes"].get<int64_t>());
  EXPECT_LE(plan["state_slots"].get<int64_t>() * report["state_bytes_per_sequence"].get<int64_t>(),
            plan["pool_bytes"].get<int64_t>());
  EXPECT_EQ(plan["max_running_requests"], 64);
  EXPECT_THAT(inspected({}), AllOf(HasSubstr("memory plan"), HasSubstr("64 requests at once")));
}

TEST(Inspect, WeightsTakeWhatTheirFormatTakesWhereNothingIsQuantised) {
  const fs::path folder = testing::dense_model();
  const Json half = Json::parse(inspected({"--json", "--dtype", "bfloat16"}, folder));
  const Json single = Json::parse(inspected({"--json", "--dtype", "float32"}, folder));
  EXPECT_EQ(half["weight_form"], "as bfloat16");
  EXPECT_EQ(single["weight_bytes"], half["weight_bytes"].get<int64_t>() * 2);
}

TEST(Inspect, WeightsTakeWhatTheirFilesStoreWhereTheyAreQuantised) {
  const checkpoint::testing::TemporaryFolder folder;
  const fs::path output = folder.path() / "int8";
  const auto report =
      checkpoint::quantise_checkpoint({.source = testing::dense_model(),
                                       .output = output,
                                       .format = checkpoint::QuantisedFormat::kInt8});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const Json stored = Json::parse(inspected({"--json"}, output));
  EXPECT_EQ(stored["weight_form"], "as stored, quantised");
  EXPECT_EQ(stored["weight_bytes"], report->output_bytes);

  const fs::path bare = folder.path() / "bare";
  fs::create_directory(bare);
  fs::copy_file(output / "config.json", bare / "config.json");
  const Json plain = Json::parse(inspected({"--json", "--dtype", "bfloat16"}, bare));
  EXPECT_EQ(plain["weight_form"], "as bfloat16, unquantised: no files to count");
  EXPECT_EQ(plain["weight_bytes"], plain["parameters"].get<int64_t>() * 2);

  // `heddle serve --load-format dummy` makes weights up unquantised, whatever files there are.
  const std::vector<std::string> dummy = {"--json", "--dtype", "bfloat16", "--load-format",
                                          "dummy"};
  EXPECT_EQ(Json::parse(inspected(dummy, output))["weight_bytes"], plain["weight_bytes"]);
  EXPECT_EQ(Json::parse(inspected(dummy, bare))["weight_form"], "as bfloat16, made up");
  const Outcome missing = run_captured(kInspect, {bare.string(), "--load-format", "safetensors"});
  EXPECT_EQ(missing.exit_code, kExitFailure);
  EXPECT_THAT(missing.errors, HasSubstr("model.safetensors"));
}

TEST(Inspect, WeightsOfAGgufFileTakeWhatTheirPackedFormsTake) {
  constexpr uint32_t kQ6K = 14;
  checkpoint::testing::GgufWriter writer;
  writer.text("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair("block_count", 1u),
                                   {"context_length", 512u},
                                   {"embedding_length", 256u},
                                   {"feed_forward_length", 512u},
                                   {"attention.head_count", 4u},
                                   {"attention.head_count_kv", 2u},
                                   {"rope.dimension_count", 64u}}) {
    writer.u32(std::string("llama.") + key, value);
  }
  writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  const auto blocks = [&](const std::string& name, int64_t N, int64_t K, uint32_t type) {
    const int64_t block_bytes = type == kQ6K ? 210 : 144;
    writer.tensor(name, {N, K}, type,
                  std::vector<std::byte>(static_cast<size_t>(N * K / 256 * block_bytes)));
  };
  blocks("token_embd.weight", 320, 256, kQ6K);
  blocks("output.weight", 320, 256, checkpoint::testing::kGgufQ4K);
  for (const auto& [name, N, K] : {std::tuple("attn_q", 256, 256),
                                   {"attn_k", 128, 256},
                                   {"attn_v", 128, 256},
                                   {"attn_output", 256, 256},
                                   {"ffn_gate", 512, 256},
                                   {"ffn_up", 512, 256},
                                   {"ffn_down", 256, 512}}) {
    blocks(std::string("blk.0.") + name + ".weight", N, K, checkpoint::testing::kGgufQ4K);
  }
  for (const char* const name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    writer.tensor(std::string(name) + ".weight", {256}, std::vector<float>(256, 1));
  }
  const checkpoint::testing::TemporaryFolder folder;
  const fs::path file = folder.write("model.gguf", writer.file());
  const Json report = Json::parse(inspected({"--json", "--dtype", "bfloat16"}, file));
  // Rows of 256 columns: of the table, and of all other matrices; norms.
  const int64_t others = 320 + 256 + 2 * 128 + 256 + 2 * 512 + 2 * 256;
  EXPECT_EQ(report["weight_bytes"], 320 * (256 + 18) + others * (128 + 20) + 2 * 3 * 256);
  EXPECT_THAT(report["weight_form"].get<std::string>(),
              AllOf(HasSubstr("MiB as int4, groups of 32, uint8 times float16 scales, minima"),
                    HasSubstr("0.08 MiB as int8, groups of 16, int8 times float16 scales"),
                    HasSubstr("MiB as bfloat16")));
}

TEST(Inspect, ListsTensors) {
  const Json tensors = Json::parse(inspected({"--tensors", "--json"}));
  const auto embedding = std::ranges::find(tensors, "model.embed_tokens.weight",
                                           [](const Json& tensor) { return tensor["name"]; });
  ASSERT_NE(embedding, tensors.end());
  EXPECT_EQ((*embedding)["dtype"], "BF16");
  EXPECT_EQ((*embedding)["shape"].size(), 2u);
  EXPECT_THAT(inspected({"--tensors"}), HasSubstr("model.embed_tokens.weight"));
}

TEST(Inspect, ListsTheSliceOfEachWeightForEachRank) {
  const Json two = Json::parse(inspected({"--tp", "2", "--json"}));
  EXPECT_EQ(two["legal"], Json({1, 2, 4}));
  EXPECT_THAT(two["refused"]["8"].get<std::string>(), HasSubstr("which 8 ranks do not divide"));
  const auto weight = [](const Json& report, const char* name) {
    return *std::ranges::find(report["weights"], name, [](const Json& at) { return at["name"]; });
  };
  EXPECT_EQ(weight(two, "embed_tokens")["cut"], "whole");
  EXPECT_EQ(weight(two, "lm_head")["shapes"], Json::parse("[[768, 256], [768, 256]]"));
  EXPECT_EQ(weight(two, "layers.3.self_attn.o_proj")["cut"], "columns");
  EXPECT_EQ(weight(two, "layers.3.self_attn.o_proj")["shapes"][1], Json({256, 256}));
  EXPECT_EQ(weight(two, "layers.3.mlp.experts.w13")["cut"], "experts");
  const Json one = Json::parse(inspected({"--tp", "1", "--json"}));
  EXPECT_EQ(weight(one, "lm_head")["cut"], "whole");
  // Both ranks hold the embedding table and the norms.
  const auto bytes = [](const Json& report) {
    return report["rank_bytes"].get<std::vector<int64_t>>();
  };
  EXPECT_EQ(bytes(two)[0], bytes(two)[1]);
  EXPECT_GT(2 * bytes(two)[0], bytes(one)[0] + 1536 * 256 * 2);
  EXPECT_LT(2 * bytes(two)[0], bytes(one)[0] * 11 / 10 + 1536 * 256 * 2);

  const Json exact = Json::parse(inspected({"--tp", "4", "--exact", "--json"}));
  EXPECT_EQ(weight(exact, "layers.3.self_attn.o_proj")["cut"], "rows");
  EXPECT_EQ(weight(exact, "layers.3.self_attn.qkv_proj")["cut"], "rows, some on several ranks");
  EXPECT_THAT(inspected({"--tp-size", "4"}),
              AllOf(HasSubstr("legal: 1, 2, 4 ranks\nnot 3: "), HasSubstr("MiB")));
  // A vocabulary below 4,096 tokens is shared row by row.
  EXPECT_THAT(inspected({"--tp", "4"}, testing::dense_model()), HasSubstr("[80, 64]"));
}

// Quantised files count with their size in memory. Without files the sizes follow from config.json.
TEST(Inspect, RanksShareFilesOfEveryKindOrNone) {
  const checkpoint::testing::TemporaryFolder folder;
  const fs::path output = folder.path() / "fp8";
  ASSERT_TRUE(checkpoint::quantise_checkpoint({.source = testing::dense_model(),
                                               .output = output,
                                               .format = checkpoint::QuantisedFormat::kFp8Block})
                  .ok());
  const fs::path bare = folder.path() / "bare";
  fs::create_directory(bare);
  fs::copy_file(output / "config.json", bare / "config.json");
  const auto bytes = [](const fs::path& model, const char* format) {
    return Json::parse(
        inspected({"--tp", "2", "--json", "--load-format", format}, model))["rank_bytes"][1];
  };
  EXPECT_LT(bytes(output, "auto"), bytes(bare, "auto"));
  EXPECT_EQ(bytes(output, "dummy"), bytes(bare, "auto"));
  fs::resize_file(output / "model.safetensors", 100);
  EXPECT_NE(run_captured(kInspect, {output.string(), "--tp", "2"}).exit_code, 0);
}

TEST(Inspect, RanksThatDoNotDivideTheModelAreRefusedWithThoseThatDo) {
  const std::string model = testing::repository_path("models/heddle-tiny").string();
  for (const auto& [count, weight] : {std::pair("3", "layers.0."), {"6", ""}, {"8", ""}}) {
    const Outcome outcome = run_captured(kInspect, {model, "--tp", count});
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.errors,
                AllOf(HasSubstr(std::string("--tp ") + count + " of " + model + ": "),
                      HasSubstr(weight), HasSubstr("; legal: 1, 2, 4\n")));
  }
  // The answer is that of the engine, also for parts that ranks do not share yet.
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", models::testing::small_of("Lfm2ForCausalLM").dump());
  EXPECT_THAT(run_captured(kInspect, {folder.path().string(), "--tp", "2"}).errors,
              HasSubstr(": ranks do not share layers.0.conv of this family yet; legal: 1\n"));
  for (const char* count : {"0", "9", "two"}) {
    const Outcome outcome = run_captured(kInspect, {model, "--tp", count});
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("--tp"), HasSubstr(count)));
  }
}

TEST(Inspect, PrintsTheGraphAndTokens) {
  EXPECT_THAT(inspected({"--graph", "--load-format", "dummy", "--step-tokens", "64"}),
              AllOf(HasSubstr("for T = 64,"), HasSubstr("-- segment 1 (split)\n"),
                    HasSubstr("= gated_delta_rule(")));
  EXPECT_GE(Json::parse(inspected({"--tokenize", "Tell me a story.", "--json"})).size(), 3u);
}

TEST(Inspect, AnOptionWithoutEffectIsAnError) {
  const std::vector<std::vector<std::string>> cases = {{"--load-format", "dummy", "--tensors"},
                                                       {"--step-tokens", "64"},
                                                       {"--tensors", "--dtype", "float32"},
                                                       {"--tokenize", "a", "--dtype", "float32"},
                                                       {"--tensors", "--kv-cache-dtype", "auto"},
                                                       {"--graph", "--json"},
                                                       {"--exact"},
                                                       {"--tp", "2", "--kv-cache-dtype", "auto"},
                                                       {"--tp", "2", "--tensors"},
                                                       {"--tp", "2", "--graph"}};
  for (std::vector<std::string> arguments : cases) {
    const std::string option = arguments[0];
    arguments.insert(arguments.begin(), "FOLDER");
    const Outcome outcome = run_captured(kInspect, std::move(arguments));
    EXPECT_EQ(outcome.exit_code, kExitUsage) << option;
    EXPECT_THAT(outcome.errors, HasSubstr(option));
  }
}

TEST(Inspect, AFormatThatIsNoneIsRefusedByName) {
  const std::string folder = testing::repository_path("models/heddle-tiny").string();
  for (const char* what : {"--dtype", "--kv-cache-dtype"}) {
    const Outcome outcome = run_captured(kInspect, {folder, "--graph", what, "nonsense"});
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.errors, HasSubstr("nonsense"));
  }
}

}  // namespace
}  // namespace heddle::tools
