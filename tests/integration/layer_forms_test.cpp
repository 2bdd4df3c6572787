// SPDX-License-Identifier: Apache-2.0
// Made models in every form that a layer can have (models/layers/layer.h), against plain loops in
// double precision: whole, in chunks, in company and from the prefix cache. In exact mode a row has
// the same bits in all of these.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "integration/every_feeding.h"
#include "models/layers/layer_forms_fixture.h"

namespace heddle {
namespace {

using models::testing::Form;

// ForwardOptions::create_model is a plain function: the form that it makes lies here.
const Form* made_form = nullptr;

std::unique_ptr<const models::Model> make_model(const checkpoint::ModelConfig& /*config*/) {
  return models::testing::model_of(*made_form);
}

// A family's file with the sizes of the made models.
std::string config_text() {
  const checkpoint::ModelConfig made = models::testing::made_config();
  return nlohmann::json{{"architectures", {"Qwen2ForCausalLM"}},
                        {"vocab_size", made.vocab_size},
                        {"hidden_size", made.hidden_size},
                        {"intermediate_size", models::testing::kWidth},
                        {"num_hidden_layers", made.num_layers},
                        {"num_attention_heads", made.num_attention_heads},
                        {"num_key_value_heads", made.num_key_value_heads},
                        {"head_dim", made.head_dim},
                        {"rms_norm_eps", made.rms_norm_eps}}
      .dump();
}

class LayerFormFeedings : public ::testing::TestWithParam<std::tuple<Form, bool>> {};

TEST_P(LayerFormFeedings, GiveWhatPlainLoopsComputeAndInExactModeTheSameBits) {
  const auto& [form, exact] = GetParam();
  made_form = &form;
  const auto model = models::testing::model_of(form);
  const auto tensors = checkpoint::testing::seeded_tensors(model->weight_specs());
  std::vector<checkpoint::NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor.view()});
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", config_text());
  ASSERT_TRUE(write_safetensors(folder.path() / "model.safetensors", named).ok());

  verify::GoldenCase golden{
      .name = form.name,
      .logits = Tensor({models::testing::kTokens, models::testing::kVocabulary}, DType::kF32)};
  for (const int32_t id : models::testing::made_ids()) golden.ids.push_back(id);
  std::ranges::transform(models::testing::truth_of(form), golden.logits.span<float>().begin(),
                         [](double logit) { return static_cast<float>(logit); });

  auto pass = runner::ForwardPass::create({.model_dir = folder.path(),
                                           .dtype = DType::kF32,
                                           .exact = exact,
                                           .num_threads = 2,
                                           .max_step_tokens = models::testing::kTokens + 64,
                                           .max_logit_rows = models::testing::kTokens + 64,
                                           .collect_hidden_states = true,
                                           .head_alone = true,
                                           .create_model = make_model});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  std::vector<float> first_logits;
  testing::check_every_feeding(**pass, golden, first_logits, [&](const verify::CaseResult& result) {
    EXPECT_LT(result.logits_error, 5e-6);
    EXPECT_TRUE(result.same_bits || !exact);
  });
}

INSTANTIATE_TEST_SUITE_P(All, LayerFormFeedings,
                         ::testing::Combine(::testing::ValuesIn(models::testing::forms()),
                                            ::testing::Bool()),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<0>(one.param).name,
                                              std::get<1>(one.param) ? "exact" : "fast");
                         });

}  // namespace
}  // namespace heddle
