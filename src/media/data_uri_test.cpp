// SPDX-License-Identifier: Apache-2.0
#include "media/data_uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_count.h"

namespace heddle::media {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(std::string_view base64) {
  const auto bytes = decode_base64(base64, {});
  return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : bytes.error().message;
}

TEST(Base64, TakesBothAlphabetsPaddingAndBlanks) {
  // The test vectors of RFC 4648.
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [text, base64] : vectors) {
    EXPECT_EQ(text_of(base64), text);
    const std::string_view whole(base64);
    EXPECT_EQ(text_of(whole.substr(0, whole.find('='))), text);
  }
  EXPECT_EQ(text_of(" Zm9v\r\n\tYm Fy \f"), "foobar");
  EXPECT_EQ(text_of("Zg=\n="), "f");
  EXPECT_EQ(text_of("+/-_"), text_of("-_+/"));
  EXPECT_EQ(text_of("+/+/"), "\xFB\xFF\xBF");
}

TEST(Base64, BrokenTextIsAnError) {
  for (const char* text :
       {"Z", "Zm9vY", "Zg=", "Zm8==", "Zm9v=", "====", "Zg==Zg==", "Zm9v!", "Z%3D", "\x80Zm9"}) {
    const auto bytes = decode_base64(text, {});
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.error().fault, MediaFault::kBase64Invalid);
  }
  EXPECT_THAT(text_of("Zm9v!"), HasSubstr("character 5 of 5 does not belong there"));
  EXPECT_THAT(text_of("Zm9vY"), HasSubstr("5 symbols and 0 signs of padding"));
}

TEST(Base64, IsBoundedBeforeItIsDecoded) {
  const int64_t most = MediaLimits().max_bytes;
  const auto encoded = [](int64_t bytes) {
    return std::string(static_cast<size_t>((bytes * 4 + 2) / 3), 'A');
  };
  const std::string text = encoded(most + 1);
  const heddle::testing::PeakMemory memory;
  const auto bytes = decode_base64(text, {});
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().fault, MediaFault::kTooManyBytes);
  EXPECT_THAT(bytes.error().message, HasSubstr("has 20971521 bytes, the limit is 20971520"));
  if (heddle::testing::PeakMemory::supported()) {
    EXPECT_LT(memory.bytes(), 1 << 16);
  }
  EXPECT_EQ(decode_base64(encoded(most), {})->size(), static_cast<size_t>(most));
}

TEST(DataUri, HasTypeParametersAndData) {
  for (const char* url : {"data:image/png;base64,Zm9v", "DATA:image/png;BASE64,Zm9v",
                          "data:image/png;charset=x;name=a;Base64,Zm 9v"}) {
    const auto uri = read_data_uri(url, {});
    ASSERT_TRUE(uri.ok()) << url << ": " << uri.error().message;
    EXPECT_EQ(uri->type, "image/png");
    EXPECT_EQ(std::string(uri->bytes.begin(), uri->bytes.end()), "foo");
  }
  EXPECT_EQ(read_data_uri("data:;base64,Zm9v", {})->type, "");
}

TEST(DataUri, OtherAddressesAreRefusedWithoutTheirText) {
  const auto fault = [](const std::string& url) {
    const auto uri = read_data_uri(url, {});
    EXPECT_FALSE(uri.ok()) << url;
    EXPECT_THAT(uri.error().message, Not(HasSubstr("secret")));
    return uri.error().fault;
  };
  for (const char* url : {"", "dat", "data:", "https://secret/a.png", "file:///secret", "secret",
                          "data:image/png,secret", "data:image/png;base64", "data:base64,Zm9v",
                          "data:image/png;base64;x,secret", "data:image/png;base64,Zm8%3D"}) {
    EXPECT_EQ(fault(url), MediaFault::kUrlInvalid) << url;
  }
  EXPECT_EQ(fault("data:" + std::string(2000, 'a') + ";base64,Zm9v"), MediaFault::kUrlInvalid);
  EXPECT_EQ(fault("data:image/png;base64,secret!"), MediaFault::kBase64Invalid);
}

}  // namespace
}  // namespace heddle::media
