// SPDX-License-Identifier: Apache-2.0
// Decoded pictures against hashes of what Pillow decodes with the same libraries.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "media/image_decoder.h"
#include "media/image_fixture.h"
#include "support/test_data.h"

namespace heddle::media {
namespace {

using namespace testing;
namespace fs = std::filesystem;

nlohmann::json json_of(const fs::path& path) {
  return nlohmann::json::parse(read_whole_file(path).value());
}

TEST(ImageVectors, DecodedPicturesEqualThoseOfPillow) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/images");
  const nlohmann::json vectors = json_of(folder / "vectors/decoded-sha256.json");
  int num_good = 0, num_broken = 0;
  for (const auto& [name, expected] : vectors.items()) {
    SCOPED_TRACE(name);
    const std::string file = read_whole_file(folder / name).value();
    for (const char* mode : {"drop", "white"}) {
      const AlphaMode alpha =
          std::string_view(mode) == "drop" ? AlphaMode::kDrop : AlphaMode::kWhite;
      const auto image = decode_image(bytes_of(file), {.alpha = alpha});
      // Its pixels have a wrong checksum, which Pillow takes.
      if (expected.contains("error") || name.ends_with("xcsn0g01.png")) {
        EXPECT_FALSE(image.ok());
        ++num_broken;
        continue;
      }
      ASSERT_TRUE(image.ok()) << image.error().message;
      EXPECT_EQ(image->size, (ImageSize{expected["size"][0], expected["size"][1]}));
      EXPECT_EQ(hash_of(*image), expected[mode]) << mode;
      ++num_good;
    }
  }
  EXPECT_GE(num_good, 2 * 160);
  EXPECT_EQ(num_broken, 2 * 14);
}

TEST(ImageVectors, OrientedPicturesEqualThoseOfPillow) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/images/vectors");
  const nlohmann::json vectors = json_of(folder / "orientation-sha256.json");
  EXPECT_EQ(vectors.size(), 24u);
  for (const auto& [name, expected] : vectors.items()) {
    const auto image = decode_image(bytes_of(read_whole_file(folder / name).value()), {});
    ASSERT_TRUE(image.ok()) << name << ": " << image.error().message;
    EXPECT_EQ(hash_of(*image), expected["sha256"]) << name;
  }
}

}  // namespace
}  // namespace heddle::media
