// SPDX-License-Identifier: Apache-2.0
// Golden cases: token ids with the logits, hidden states and greedy continuation that a reference
// implementation computed for them. `heddle verify` and the whole-model tests compare a model with
// them (golden_comparison.h). A case is fed to the model directly (plain_feeding.h) or served from
// the prefix cache (cached_feeding.h).
//
// A golden file is a safetensors file with these tensors per case: NAME.input_ids [T] i32 and
// NAME.logits [rows, V] f32 (every row, or every k-th from the first on). Optional are
// NAME.logits_step [1] i32 (k; by default the smallest that yields this number of rows),
// NAME.hidden_states [layers + 1, T, H] f32 (the last one after the final norm) and NAME.greedy or
// NAME.greedy_ids [n] i32. Prompts with pictures also have NAME.pixel_values f32 with the patches
// of all pictures, NAME.image_grid_thw [pictures, 3] (1 frame, rows and columns of patches) and
// optionally NAME.position_ids [3, T]. A file with a single case may omit "NAME.". Integers may be
// i64.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <heddle/adapter.h>
#include <heddle/request.h>

#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "core/tensor.h"
#include "request/picture_positions.h"

namespace heddle::verify {

// The recorded pictures of a case.
struct RecordedPictures {
  struct Grid {
    int64_t height = 0;  // in patches
    int64_t width = 0;
  };

  std::vector<Grid> grids;
  Tensor patches;                  // [patches of all pictures, values] f32
  std::vector<int32_t> positions;  // [3, T] of the prompt; empty: not recorded
};

// The encoded pictures of a case. MediaSpan::first_row is a row of `features`.
struct GoldenPictures {
  request::PicturePositions positions;
  Tensor features;  // [tokens of all pictures, VisionConfig::feature_width()] f32
};

struct GoldenCase {
  std::string name;
  std::vector<TokenId> ids;
  Tensor logits;
  int64_t logits_row_step = 1;  // row i of `logits` belongs to token i * step
  std::optional<Tensor> hidden_states;
  std::vector<TokenId> greedy;
  std::shared_ptr<const Adapter> adapter = nullptr;  // the pass's adapter that the case is computed
                                                     // with; null: none
  std::optional<RecordedPictures> recorded_pictures = {};
  std::optional<GoldenPictures> pictures = {};  // from encode_pictures()

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }

  // Number of tokens whose logits are compared: the prompt and the continuation without its last
  // token.
  [[nodiscard]] int64_t num_compared_tokens() const {
    return num_tokens() + (greedy.empty() ? 0 : static_cast<int64_t>(greedy.size()) - 1);
  }
};

// Reads all cases. Error: kDataLoss, naming the case and the tensor that is missing or has another
// shape or dtype.
Result<std::vector<GoldenCase>> read_golden_cases(const checkpoint::SafetensorsFile& file);

// Checks that a case was recorded from a model like this one. Error: kInvalidArgument if vocabulary
// or width differ.
Status check_fits(const GoldenCase& golden, const checkpoint::ModelConfig& config);

}  // namespace heddle::verify
