// SPDX-License-Identifier: Apache-2.0
#include "media/image_processor_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/mapped_file.h"
#include "core/file_presence.h"

namespace heddle::media {

namespace {

using checkpoint::ConfigReader;

constexpr const char* kProcessorFile = "processor_config.json";
constexpr const char* kPreprocessorFile = "preprocessor_config.json";

constexpr ConfigReader::IntegerRange kPatchSide{1, 256};
constexpr ConfigReader::IntegerRange kMergedSide{1, 32};
constexpr ConfigReader::IntegerRange kFrames{1, 16};
constexpr ConfigReader::IntegerRange kPictureSide{1, 1 << 16};
constexpr ConfigReader::IntegerRange kPictureTokens{1, 1 << 20};
constexpr ConfigReader::IntegerRange kPicturePixels{1, int64_t{1} << 32};

const std::vector<double> kClipMean = {0.48145466, 0.4578275, 0.40821073};
const std::vector<double> kClipDeviation = {0.26862954, 0.26130258, 0.27577711};
const std::vector<double> kHalf = {0.5, 0.5, 0.5};

// Reads the configuration from the scopes of one file in which keys are looked up.
class ProcessorReader {
 public:
  // `root` is all of processor_config.json, or null.
  ProcessorReader(ConfigReader reader, const nlohmann::json* root)
      : reader_(std::move(reader)), root_(root) {}

  Result<ImageProcessorConfig> read() {
    std::string type = reader_.text("image_processor_type", "");
    for (const std::string_view suffix : {"Fast", "Pil"}) {
      if (!type.ends_with(suffix)) continue;
      type.resize(type.size() - suffix.size());
      if (suffix == "Pil") config_.arithmetic = ResampleArithmetic::kPillow;
    }
    const auto* const known = std::ranges::find(kClasses, type, &ProcessorClass::name);
    if (known != std::end(kClasses)) {
      (this->*known->read)();
      // Kimi K2.5, whose processor class is Python code in the model's folder
    } else if (reader_.has("media_proc_cfg")) {
      read_never_enlarge();
    } else {
      std::string names;
      for (const ProcessorClass& one : kClasses) names += fmt::format("{}, ", one.name);
      reader_.refuse("image_processor_type",
                     fmt::format("pictures are read for {}and for files with media_proc_cfg; "
                                 "remove the file to serve the model for text only",
                                 names));
    }
    HEDDLE_RETURN_IF_ERROR(reader_.status());
    return config_;
  }

 private:
  struct Defaults {
    ResampleFilter filter = ResampleFilter::kBicubic;
    std::vector<double> mean = kClipMean;
    std::vector<double> deviation = kClipDeviation;
    bool normalise = true;
  };

  void read_common(const Defaults& defaults) {
    // Filters have PIL's numbers. torch has no Lanczos filter; transformers uses bicubic in its
    // place.
    const int64_t filter = reader_.integer(
        "resample", defaults.filter == ResampleFilter::kBicubic ? 3 : 2, {.low = 0, .high = 5});
    if (filter == 2) {
      config_.filter = ResampleFilter::kBilinear;
      if (config_.arithmetic == ResampleArithmetic::kTorch) {
        config_.arithmetic = ResampleArithmetic::kFloat;
      }
    } else if (filter != 3 && filter != 1) {
      reader_.refuse("resample", "pictures are scaled with 2 (bilinear) or 3 (bicubic)");
    }
    if (!reader_.boolean("do_resize", true)) {
      reader_.refuse("do_resize", "pictures are always scaled to the model's sizes");
    }
    Normalisation& normalisation = config_.normalisation;
    normalisation.rescale = reader_.boolean("do_rescale", true);
    normalisation.rescale_factor =
        reader_.number("rescale_factor", 1.0 / 255, {.low = 1e-6, .high = 1});
    normalisation.normalise = reader_.boolean("do_normalize", defaults.normalise);
    const auto triple = [&](const char* key, const std::vector<double>& fallback, double low) {
      const auto numbers = reader_.numbers(key, fallback, {.low = low, .high = 1e3});
      return std::array<double, 3>{numbers[0], numbers[1], numbers[2]};
    };
    normalisation.mean = triple("image_mean", defaults.mean, -1e3);
    normalisation.deviation =
        triple("image_std", defaults.deviation, normalisation.normalise ? 1e-6 : 0);
  }

  // Reads a number, or {"height": n, "width": n} with two equal numbers.
  int64_t patch_side(int64_t fallback) {
    const nlohmann::json* const value = reader_.find("patch_size");
    if (value == nullptr || !value->is_object()) {
      return reader_.integer("patch_size", fallback, kPatchSide);
    }
    ConfigReader inner = reader_.narrowed({value}, false);
    const int64_t height = inner.integer("height", std::nullopt, kPatchSide);
    if (inner.integer("width", std::nullopt, kPatchSide) != height) {
      reader_.refuse("patch_size", "patches must be square");
    }
    return height;
  }

  // Reads a member of the object `size`.
  int64_t size_member(std::string_view key, int64_t fallback, ConfigReader::IntegerRange range) {
    return reader_.narrowed({reader_.object("size")}, false).integer(key, fallback, range);
  }

  void read_grid(int64_t patch, int64_t merge, int64_t frames) {
    config_.patch = patch_side(patch);
    config_.merge = reader_.integer("merge_size", merge, kMergedSide);
    config_.frames = reader_.integer("temporal_patch_size", frames, kFrames);
    config_.patch_order = PatchOrder::kMergedCells;
  }

  void read_smart_resize() {
    read_common({});
    read_grid(14, 2, 2);
    SmartResize rule{.factor = config_.patch * config_.merge,
                     .min_pixels = 56 * 56,
                     .max_pixels = 28 * 28 * 1280};
    // Despite their names, "shortest_edge" and "longest_edge" are numbers of pixels.
    for (const auto& [low, high] :
         {std::pair("min_pixels", "max_pixels"), std::pair("shortest_edge", "longest_edge")}) {
      rule.min_pixels = size_member(low, rule.min_pixels, kPicturePixels);
      rule.max_pixels = size_member(high, rule.max_pixels, kPicturePixels);
    }
    rule.min_pixels = reader_.integer("min_pixels", rule.min_pixels, kPicturePixels);
    rule.max_pixels = reader_.integer("max_pixels", rule.max_pixels, kPicturePixels);
    if (rule.min_pixels < rule.factor * rule.factor || rule.max_pixels < rule.min_pixels) {
      reader_.fail(invalid_argument(
          fmt::format("pictures may have {} to {} pixels, and a token has {} x {}: the bounds "
                      "(size, min_pixels, max_pixels) must be at least that, and in order",
                      rule.min_pixels, rule.max_pixels, rule.factor, rule.factor)));
    }
    config_.size = rule;
  }

  void read_budget_search() {
    read_common({});
    read_grid(14, 2, 2);
    const int64_t expand = reader_.integer("patch_expand_factor", 1, kMergedSide);
    BudgetSearch rule{.factor = config_.patch * config_.merge * expand, .frames = config_.frames};
    rule.min_tokens = reader_.integer("min_image_tokens", 16, kPictureTokens);
    rule.max_tokens = reader_.integer("max_image_tokens", 8000,
                                      {.low = rule.min_tokens, .high = kPictureTokens.high});
    config_.size = rule;
  }

  void read_never_enlarge() {
    read_common({.mean = kHalf, .deviation = kHalf});
    NeverEnlarge rule;
    rule.patch = config_.patch = patch_side(14);
    rule.merge = config_.merge = reader_.integer("merge_kernel_size", 2, kMergedSide);
    rule.max_patches = reader_.integer("in_patch_limit", 16384, kPictureTokens);
    rule.max_side_patches = reader_.integer("patch_limit_on_one_side", 512, {1, 1 << 12});
    if (!reader_.is_off("fixed_output_tokens")) {
      reader_.refuse("fixed_output_tokens", "the number of tokens must depend on the picture");
    }
    config_.size = rule;
  }

  void read_fixed_size() {
    read_common({.filter = ResampleFilter::kBilinear, .mean = kHalf, .deviation = kHalf});
    const ImageSize size{.height = size_member("height", 896, kPictureSide),
                         .width = size_member("width", 896, kPictureSide)};
    config_.size = FixedSize{size};
    config_.patch = patch_side(14);
    const int64_t tokens = reader_.integer("image_seq_length", 256, kPictureTokens);
    const int64_t patches = (size.height / config_.patch) * (size.width / config_.patch);
    config_.merge = std::llround(std::sqrt(static_cast<double>(patches / tokens)));
    const int64_t unit = config_.patch * config_.merge;
    if (unit == 0 || size.height % unit != 0 || size.width % unit != 0 ||
        config_.merge * config_.merge * tokens != patches) {
      reader_.fail(invalid_argument(
          fmt::format("image_seq_length is {}, which does not divide the {} patches of {} x {} "
                      "pixels into squares",
                      tokens, patches, size.width, size.height)));
    }
    if (reader_.boolean("do_pan_and_scan", false)) {
      PanAndScan rule;
      rule.min_crop = reader_.integer("pan_and_scan_min_crop_size", 256, kPictureSide);
      rule.max_crops = reader_.integer("pan_and_scan_max_num_crops", 4, {1, 64});
      rule.min_ratio = reader_.number("pan_and_scan_min_ratio_to_activate", 1.2, {1, 1e6});
      config_.pan_and_scan = rule;
    }
  }

  void read_area_fit() {
    read_common({.mean = {0, 0, 0}, .deviation = {1, 1, 1}, .normalise = false});
    AreaFit rule;
    rule.patch = config_.patch = patch_side(16);
    rule.pool = config_.merge = reader_.integer("pooling_kernel_size", 3, kMergedSide);
    rule.max_tokens = reader_.integer("max_soft_tokens", 280, kPictureTokens);
    config_.size = rule;
    config_.value_order = ValueOrder::kChannelLast;
  }

  void read_longest_edge() {
    read_common({});
    config_.patch = patch_side(16);
    // This key belongs to the processor that contains the image processor.
    config_.merge = reader_.narrowed({root_}, true).integer("spatial_merge_size", 1, kMergedSide);
    LongestEdge rule{.longest = size_member("longest_edge", 1024, kPictureSide)};
    rule.factor = config_.patch * config_.merge;
    config_.size = rule;
  }

  struct ProcessorClass {
    std::string_view name;
    void (ProcessorReader::*read)();
  };

  static const ProcessorClass kClasses[5];

  ConfigReader reader_;
  const nlohmann::json* root_;
  ImageProcessorConfig config_;
};

const ProcessorReader::ProcessorClass ProcessorReader::kClasses[] = {
    {"Qwen2VLImageProcessor", &ProcessorReader::read_smart_resize},
    {"Glm5NextImageProcessor", &ProcessorReader::read_budget_search},
    {"Gemma3ImageProcessor", &ProcessorReader::read_fixed_size},
    {"Gemma4ImageProcessor", &ProcessorReader::read_area_fit},
    {"PixtralImageProcessor", &ProcessorReader::read_longest_edge},
};

}  // namespace

Result<ImageProcessorConfig> parse_image_processor_config(std::string_view processor,
                                                          std::string_view preprocessor) {
  nlohmann::json root, plain;
  if (!processor.empty()) {
    auto parsed = checkpoint::parse_json_object(processor);
    if (!parsed.ok()) return parsed.status().with_context(kProcessorFile);
    root = std::move(*parsed);
  }
  const bool is_nested = root.contains("image_processor") && !root["image_processor"].is_null();
  if (!is_nested && preprocessor.empty()) {
    return not_found(
        fmt::format("neither {} nor an image_processor in {} says how pictures are "
                    "read; add one of the two from the model's page",
                    kPreprocessorFile, kProcessorFile));
  }
  if (!is_nested) {
    auto parsed = checkpoint::parse_json_object(preprocessor);
    if (!parsed.ok()) return parsed.status().with_context(kPreprocessorFile);
    plain = std::move(*parsed);
  }
  Status error;
  ConfigReader outer({is_nested ? &root : &plain}, error);
  const nlohmann::json* const keys = is_nested ? outer.object("image_processor") : &plain;
  const char* const file = is_nested ? kProcessorFile : kPreprocessorFile;
  if (!error.ok()) return error.with_context(file);
  ConfigReader inner = outer.narrowed({keys}, false);
  // Kimi K2.5 has its keys one level deeper, in an object of their own.
  const nlohmann::json* const deeper = inner.object("media_proc_cfg");
  auto config = ProcessorReader(inner.narrowed({deeper}, true), &root).read();
  if (!config.ok()) return config.status().with_context(file);
  return config;
}

Result<ImageProcessorConfig> load_image_processor_config(const std::filesystem::path& folder) {
  std::array<std::string, 2> texts;
  const std::array<const char*, 2> names = {kProcessorFile, kPreprocessorFile};
  for (size_t i = 0; i < names.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(folder / names[i]));
    if (!exists) continue;
    HEDDLE_ASSIGN_OR_RETURN(
        texts[i], checkpoint::read_text_file(folder / names[i], checkpoint::kMaxConfigBytes));
  }
  auto config = parse_image_processor_config(texts[0], texts[1]);
  if (!config.ok()) return config.status().with_context(folder.string());
  return config;
}

}  // namespace heddle::media
