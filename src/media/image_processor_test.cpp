// SPDX-License-Identifier: Apache-2.0
#include "media/image_processor.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/json_reader.h"
#include "media/image_decoder.h"
#include "media/image_fixture.h"
#include "support/test_data.h"

namespace heddle::media {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ImageProcessorConfig parsed(const std::string& preprocessor, const std::string& processor = "") {
  auto config = parse_image_processor_config(processor, preprocessor);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ImageProcessorConfig();
}

std::string complaint(const std::string& preprocessor, const std::string& processor = "") {
  const auto config = parse_image_processor_config(processor, preprocessor);
  EXPECT_FALSE(config.ok());
  return config.status().message();
}

TEST(ImageProcessorConfig, ReadsBothSpellings) {
  const std::string keys = R"({"image_processor_type": "Qwen2VLImageProcessorFast",
      "patch_size": 16, "size": {"shortest_edge": 65536, "longest_edge": 16777216},
      "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
  for (const bool nested : {false, true}) {
    const auto config = nested
                            ? parsed("broken, and not read", "{\"image_processor\": " + keys + "}")
                            : parsed(keys, R"({"processor_class": "Qwen3VLProcessor"})");
    const auto& rule = std::get<SmartResize>(config.size);
    EXPECT_EQ(rule.factor, 32);
    EXPECT_EQ(rule.min_pixels, 65'536);
    EXPECT_EQ(rule.max_pixels, 16'777'216);
    EXPECT_EQ(config.patch, 16);
    EXPECT_EQ(config.merge, 2);
    EXPECT_EQ(config.frames, 2);
    EXPECT_THAT(config.normalisation.mean, ElementsAre(0.5, 0.5, 0.5));
    EXPECT_EQ(config.filter, ResampleFilter::kBicubic);
    EXPECT_EQ(config.arithmetic, ResampleArithmetic::kTorch);
  }
}

TEST(ImageProcessorConfig, OlderKeysWin) {
  const auto rule = [](const std::string& keys) {
    return std::get<SmartResize>(
        parsed(R"({"image_processor_type": "Qwen2VLImageProcessor")" + keys + "}").size);
  };
  EXPECT_EQ(rule("").min_pixels, 3136);
  EXPECT_EQ(rule("").max_pixels, 1'003'520);
  const SmartResize older = rule(R"(, "min_pixels": 4000, "max_pixels": 5000,
      "size": {"shortest_edge": 3136, "longest_edge": 12845056})");
  EXPECT_EQ(older.min_pixels, 4000);
  EXPECT_EQ(older.max_pixels, 5000);
  EXPECT_EQ(rule(R"(, "size": {"min_pixels": 3137, "max_pixels": 9999})").max_pixels, 9999);
}

TEST(ImageProcessorConfig, ReadsEveryFamily) {
  const auto tokens = [](const ImageProcessorConfig& config, ImageSize size) {
    const auto plan = ImageProcessor(config).plan(size);
    EXPECT_TRUE(plan.ok());
    return plan.ok() ? plan->tokens : 0;
  };
  const auto qwen = parsed(R"({"image_processor_type": "Qwen2VLImageProcessor",
      "min_pixels": 3136, "max_pixels": 12845056})");
  EXPECT_EQ(tokens(qwen, {4000, 6000}), 16'224);

  const auto glm = parsed(R"({"image_processor_type": "Glm5NextImageProcessor"})");
  EXPECT_EQ(tokens(glm, {4000, 6000}), 7957);
  EXPECT_EQ(glm.patch_order, PatchOrder::kMergedCells);

  const auto kimi = parsed(R"({"media_proc_cfg": {"in_patch_limit": 16384, "patch_size": 14,
      "merge_kernel_size": 2, "patch_limit_on_one_side": 512, "fixed_output_tokens": null,
      "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}})");
  EXPECT_EQ(tokens(kimi, {3000, 4000}), 4200);
  EXPECT_EQ(kimi.patch_order, PatchOrder::kRaster);

  const auto fixed = parsed(R"({"image_processor_type": "Gemma3ImageProcessor", "resample": 2,
      "size": {"height": 896, "width": 896}, "image_seq_length": 256, "do_pan_and_scan": true})");
  EXPECT_EQ(tokens(fixed, {800, 2000}), 4 * 256);
  EXPECT_EQ(fixed.arithmetic, ResampleArithmetic::kFloat);

  const auto area = parsed("", R"({"image_processor": {"do_normalize": false,
      "image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 140, "patch_size": 16,
      "pooling_kernel_size": 3, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}})");
  EXPECT_EQ(tokens(area, {768, 1024}), 130);
  EXPECT_FALSE(area.normalisation.normalise);
  EXPECT_EQ(area.value_order, ValueOrder::kChannelLast);

  const std::string edge = R"({"image_processor_type": "PixtralImageProcessor",
      "patch_size": {"height": 14, "width": 14}, "size": {"longest_edge": 1540}})";
  EXPECT_EQ(tokens(parsed(edge, R"({"spatial_merge_size": 2})"), {1080, 1920}), 31 * 55);
  EXPECT_EQ(tokens(parsed(R"({"image_processor_type": "PixtralImageProcessor"})"), {768, 1024}),
            3072);

  EXPECT_EQ(parsed(R"({"image_processor_type": "Qwen2VLImageProcessorPil"})").arithmetic,
            ResampleArithmetic::kPillow);
  EXPECT_EQ(parsed(R"({"image_processor_type": "Qwen2VLImageProcessor", "resample": 1})").filter,
            ResampleFilter::kBicubic);
}

TEST(ImageProcessorConfig, ErrorsNameFileKeyAndValue) {
  EXPECT_THAT(complaint(""), HasSubstr("neither preprocessor_config.json nor an image_processor"));
  EXPECT_THAT(complaint("{"), HasSubstr("preprocessor_config.json: "));
  EXPECT_THAT(complaint("{}", R"({"image_processor": 3})"),
              HasSubstr("processor_config.json: image_processor is 3, not an object"));
  const auto with = [](const std::string& keys) {
    return complaint(R"({"image_processor_type": "Qwen2VLImageProcessor", )" + keys + "}");
  };
  EXPECT_THAT(with(R"("patch_size": 0)"), HasSubstr("preprocessor_config.json: patch_size is 0"));
  EXPECT_THAT(with(R"("patch_size": {"height": 14, "width": 16})"), HasSubstr("must be square"));
  EXPECT_THAT(with(R"("resample": 0)"), HasSubstr("resample is 0; pictures are scaled with 2"));
  EXPECT_THAT(with(R"("image_std": [0.5, 0, 0.5])"), HasSubstr("image_std has 0"));
  EXPECT_THAT(with(R"("image_mean": [0.5])"), HasSubstr("image_mean is"));
  EXPECT_THAT(with(R"("min_pixels": 100)"), HasSubstr("may have 100 to 1003520 pixels"));
  EXPECT_THAT(complaint(R"({"image_processor_type": "Llama4ImageProcessor"})"),
              HasSubstr("image_processor_type is \"Llama4ImageProcessor\"; pictures are read for"));
  EXPECT_THAT(complaint("{}"), HasSubstr("image_processor_type is absent"));
  EXPECT_THAT(complaint(R"({"image_processor_type": "Gemma3ImageProcessor",
      "image_seq_length": 255})"),
              HasSubstr("image_seq_length is 255, which does not divide"));
  EXPECT_THAT(complaint(R"({"media_proc_cfg": {"fixed_output_tokens": 64}})"),
              HasSubstr("fixed_output_tokens is 64"));
}

// A configuration without rescaling or normalisation: the values are the bytes of the pixels.
ImageProcessorConfig plain(SizeRule rule) {
  ImageProcessorConfig config{.size = rule, .patch = 2};
  config.normalisation.rescale = config.normalisation.normalise = false;
  return config;
}

// A picture whose pixel (y, x) has the channels 3 (8 y + x) + {0, 1, 2}.
Image numbered(int64_t height, int64_t width) {
  Image image({.height = height, .width = width});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t i = 0; i < 3 * width; ++i) image.row(y)[i] = static_cast<uint8_t>(24 * y + i);
  }
  return image;
}

// Identifies the top left pixel of each patch as 8 y + x, which its red channel gives.
std::vector<int> corners(const Patches& patches) {
  std::vector<int> result;
  for (size_t i = 0; i < patches.values.size(); i += static_cast<size_t>(patches.features)) {
    result.push_back(static_cast<int>(patches.values[i]) / 3);
  }
  return result;
}

TEST(ImageProcessor, OrdersPatchesAndTheirValues) {
  const Image image = numbered(4, 8);
  auto config = plain(SmartResize{.factor = 4, .min_pixels = 16, .max_pixels = 32});
  config.merge = 2;
  config.frames = 2;
  config.patch_order = PatchOrder::kMergedCells;
  const auto merged = ImageProcessor(config).process(image);
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->size(), 1u);
  EXPECT_EQ(merged->front().grid_height, 2);
  EXPECT_EQ(merged->front().grid_width, 4);
  EXPECT_EQ(merged->front().features, 24);
  EXPECT_THAT(corners(merged->front()), ElementsAre(0, 2, 16, 18, 4, 6, 20, 22));
  const auto& values = merged->front().values;
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 24),
              ElementsAre(0, 3, 24, 27, 0, 3, 24, 27, 1, 4, 25, 28, 1, 4, 25, 28,  //
                          2, 5, 26, 29, 2, 5, 26, 29));

  config.frames = 1;
  config.patch_order = PatchOrder::kRaster;
  config.value_order = ValueOrder::kChannelLast;
  const auto raster = ImageProcessor(config).process(image);
  EXPECT_THAT(corners(raster->front()), ElementsAre(0, 2, 4, 6, 16, 18, 20, 22));
  const auto& last = raster->front().values;
  EXPECT_THAT(std::vector<float>(last.begin(), last.begin() + 12),
              ElementsAre(0, 1, 2, 3, 4, 5, 24, 25, 26, 27, 28, 29));
}

TEST(ImageProcessor, PadsWithZerosRightAndBelow) {
  auto config =
      plain(NeverEnlarge{.patch = 2, .merge = 2, .max_patches = 100, .max_side_patches = 100});
  config.merge = 2;
  Image image({.height = 3, .width = 5});
  std::ranges::fill(image.rgb, uint8_t{9});
  const auto patches = ImageProcessor(config).process(image);
  ASSERT_TRUE(patches.ok());
  const Patches& only = patches->front();
  ASSERT_EQ(only.grid_height, 2);
  ASSERT_EQ(only.grid_width, 4);
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 8; ++x) {
      const int64_t patch = (y / 2) * 4 + x / 2;
      const auto at = static_cast<size_t>(patch * 12 + (y % 2) * 2 + x % 2);
      EXPECT_EQ(only.values[at], y < 3 && x < 5 ? 9 : 0) << y << " " << x;
    }
  }
}

TEST(ImageProcessor, CropsFollowTheWholePicture) {
  auto config = plain(FixedSize{{4, 4}});
  config.arithmetic = ResampleArithmetic::kFloat;
  config.pan_and_scan = PanAndScan{.min_crop = 4};
  const Image image = numbered(4, 8);
  const ImageProcessor processor(config);
  const auto plan = processor.plan(image.size);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->pieces.size(), 3u);
  EXPECT_EQ(plan->tokens, 12);
  const auto pieces = processor.process(image);
  ASSERT_EQ(pieces->size(), 3u);
  EXPECT_THAT(corners((*pieces)[1]), ElementsAre(0, 2, 16, 18));
  EXPECT_THAT(corners((*pieces)[2]), ElementsAre(4, 6, 20, 22));
}

TEST(PixelValues, RoundAsTransformersDoes) {
  const PixelValues clip({.mean = {0.48145466, 0.4578275, 0.40821073},
                          .deviation = {0.26862954, 0.26130258, 0.27577711}});
  for (int64_t c = 0; c < 3; ++c) {
    const float mean =
        std::vector<float>({0.48145466f, 0.4578275f, 0.40821073f})[static_cast<size_t>(c)] * 255.0f;
    const float deviation =
        std::vector<float>({0.26862954f, 0.26130258f, 0.27577711f})[static_cast<size_t>(c)] *
        255.0f;
    for (int v = 0; v < 256; ++v) {
      EXPECT_EQ(clip.channel(c)[static_cast<size_t>(v)],
                (static_cast<float>(v) - mean) / deviation);
    }
  }
  const PixelValues rescaled({.normalise = false});
  EXPECT_EQ(rescaled.channel(1)[7], 7.0f * static_cast<float>(1.0 / 255));
  EXPECT_EQ(PixelValues({.rescale = false, .mean = {1, 2, 3}}).channel(2)[7], 4);
}

// The number of values that differ from the recorded ones in at least one bit.
int64_t num_different(const std::vector<Patches>& pieces, const checkpoint::SafetensorsFile& file,
                      const std::string& name, int64_t* num_values) {
  const auto tensor = file.view(name);
  EXPECT_TRUE(tensor.ok()) << tensor.status().message();
  std::vector<float> values;
  for (const Patches& piece : pieces) {
    values.insert(values.end(), piece.values.begin(), piece.values.end());
  }
  const int64_t count = tensor->shape.num_elements();
  EXPECT_EQ(static_cast<int64_t>(values.size()), count);
  if (static_cast<int64_t>(values.size()) != count) return count;
  std::vector<float> expected(values.size());
  std::memcpy(expected.data(), tensor->data, expected.size() * sizeof(float));
  int64_t different = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    different += std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(expected[i]) ? 1 : 0;
  }
  *num_values += count;
  return different;
}

TEST(ImageProcessorGolden, QwenPixelValuesAreEqualBitForBit) {
  for (const auto& [model, count] : {std::pair("qwen2_5_vl", 28'224), {"qwen3_vl", 36'864}}) {
    HEDDLE_SHARED_PATH_OR_SKIP(folder, std::filesystem::path("golden") / model);
    const auto config = load_image_processor_config(folder);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto image = decode_image(bytes_of(read_whole_file(folder / "image.png").value()), {});
    ASSERT_TRUE(image.ok()) << image.error().message;
    const auto pieces = ImageProcessor(*config).process(*image);
    ASSERT_TRUE(pieces.ok()) << pieces.error().message;
    auto golden = checkpoint::SafetensorsFile::open(folder / "cases.safetensors");
    ASSERT_TRUE(golden.ok());
    int64_t num_values = 0;
    EXPECT_EQ(num_different(*pieces, *golden, "pixel_values", &num_values), 0) << model;
    EXPECT_EQ(num_values, count);
  }
}

TEST(ImageProcessorGolden, HeddleSeePixelValuesAreEqualBitForBit) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/heddle-see");
  const auto config = load_image_processor_config(folder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  auto golden = checkpoint::SafetensorsFile::open(folder / "golden.safetensors");
  ASSERT_TRUE(golden.ok());
  int64_t num_values = 0;
  for (const auto& [prompt, num_pictures] : {std::pair(0, 1), {1, 2}, {3, 1}}) {
    std::vector<Patches> pieces;
    for (int i = 0; i < num_pictures; ++i) {
      const auto rgb = golden->view(fmt::format("{}.rgb{}", prompt, i));
      ASSERT_TRUE(rgb.ok());
      Image image({.height = rgb->shape[0], .width = rgb->shape[1]});
      std::memcpy(image.rgb.data(), rgb->data, image.rgb.size());
      auto made = ImageProcessor(*config).process(image);
      ASSERT_TRUE(made.ok());
      pieces.insert(pieces.end(), made->begin(), made->end());
    }
    EXPECT_EQ(num_different(pieces, *golden, fmt::format("{}.pixel_values", prompt), &num_values),
              0)
        << prompt;
  }
  EXPECT_EQ(num_values, 168'960);
}

}  // namespace
}  // namespace heddle::media
