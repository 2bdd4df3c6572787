// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unread_keys.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kRead = "swiglu_limit";

// The error for a file with `key`, from a family that reads kRead and no other key.
std::string complaint(std::string_view key, std::string_view value, bool has_experts = true,
                      const json& others = json::object()) {
  json document = others;
  document[std::string(key)] = json::parse(value);
  Status error;
  ConfigReader reader({&document}, error);
  (void)reader.has(kRead);
  ModelConfig config;
  config.family = "Plain";
  config.is_moe_layer = {has_experts};
  refuse_unread_keys(reader, config);
  return error.message();
}

TEST(UnreadKeys, MustBeOffAbsentOrAsUsual) {
  EXPECT_EQ(complaint("mlp_bias", "true"), "mlp_bias is true; Plain is served without it");
  EXPECT_EQ(complaint("final_logit_softcapping", "30.0"),
            "final_logit_softcapping is 30.0; Plain is served without it");
  EXPECT_EQ(complaint("mlp_only_layers", "[0, 3]"),
            "mlp_only_layers is [0,3]; Plain is served without it");
  EXPECT_EQ(complaint("n_group", "8"), "n_group is 8; Plain is served with 1 only");
  EXPECT_EQ(complaint("scoring_func", "\"sigmoid\""),
            "scoring_func is \"sigmoid\"; Plain is served with \"softmax\" only");
  for (const char* off : {"null", "false", "0", "0.0", "[]", "\"\"", "{}"}) {
    EXPECT_THAT(complaint("mlp_bias", off), IsEmpty()) << off;
  }
  for (const char* usual : {"null", "1", "1.0"}) {
    EXPECT_THAT(complaint("routed_scaling_factor", usual), IsEmpty()) << usual;
  }
}

// Keys that relatives of the served families have beyond them, as their files write them.
TEST(UnreadKeys, NameWhatOtherModelsHave) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, const char*>>{
           {"attn_temperature_tuning", "true"},
           {"dual_chunk_attention_config", R"({"chunk_size": 262144})"},
           {"attention_k_eq_v", "true"},
           {"global_head_dim", "512"},
           {"hidden_size_per_layer_input", "256"},
           {"hc_mult", "4"},
           {"compress_ratios", "[0, 4, 128]"},
           {"o_lora_rank", "1024"},
           {"rotary_dim", "64"},
           {"rope_interleave", "true"},
           {"hybrid_override_pattern", "\"MEM*\""},
           {"lm_head_bias", "true"},
           {"use_routing_bias", "true"},
           {"moe_shared_expert_intermediate_size", "3712"}}) {
    EXPECT_THAT(complaint(key, value), HasSubstr("Plain is served without it")) << key;
  }
  EXPECT_EQ(complaint("moe_layer_freq", "2"), "moe_layer_freq is 2; Plain is served with 1 only");
  EXPECT_EQ(complaint("logit_scale", "0.0625"),
            "logit_scale is 0.0625; Plain is served with 1.0 only");
}

TEST(UnreadKeys, AreFineOnceAFamilyHasReadThem) { EXPECT_THAT(complaint(kRead, "7.0"), IsEmpty()); }

TEST(UnreadKeys, OfTheRouterMeanNothingWithoutExperts) {
  EXPECT_THAT(complaint("n_group", "8", /*has_experts=*/false), IsEmpty());
  EXPECT_THAT(complaint("num_experts", "8", /*has_experts=*/false),
              HasSubstr("num_experts is 8; Plain is served without it"));
}

TEST(UnreadKeys, MayNameAWindowThatNothingUses) {
  EXPECT_THAT(complaint("sliding_window", "24"),
              HasSubstr("sliding_window is 24; Plain is served with attention to all tokens"));
  EXPECT_THAT(complaint("sliding_window", "24", true, {{"use_sliding_window", false}}), IsEmpty());
  EXPECT_THAT(complaint("sliding_window", "64", true, {{"max_position_embeddings", 64}}),
              IsEmpty());
  EXPECT_THAT(complaint("sliding_window", "63", true, {{"max_position_embeddings", 64}}),
              HasSubstr("sliding_window is 63"));
}

TEST(ConfigReader, RemembersWhatItWasAskedFor) {
  const json document = {{"a", 1}, {"b", false}, {"inner", {{"c", 2}}}};
  Status error;
  ConfigReader reader({&document}, error);
  EXPECT_FALSE(reader.was_asked_for("a"));
  EXPECT_EQ(reader.spelling("z", "a"), "a");
  EXPECT_TRUE(reader.was_asked_for("a"));
  EXPECT_TRUE(reader.was_asked_for("z")) << "absent keys count";
  EXPECT_EQ(reader.spelling("y", "x"), "y");
  EXPECT_TRUE(reader.is_off("b"));
  reader.disregard("d");
  EXPECT_TRUE(reader.was_asked_for("d"));
  ConfigReader inner = reader.narrowed({reader.object("inner")}, /*keep_own=*/true);
  EXPECT_EQ(inner.integer("c", std::nullopt, {1, 9}), 2);
  EXPECT_FALSE(reader.was_asked_for("c"));
  reader.refuse("a", "use 2");
  EXPECT_EQ(error.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(error.message(), "a is 1; use 2");
}

}  // namespace
}  // namespace heddle::checkpoint
