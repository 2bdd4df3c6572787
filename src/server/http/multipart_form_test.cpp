// SPDX-License-Identifier: Apache-2.0
#include "server/http/multipart_form.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=xyz";

std::vector<FormPart> parts_of(std::string_view type, std::string_view body) {
  auto form = parse_multipart_form(type, body);
  EXPECT_TRUE(std::holds_alternative<std::vector<FormPart>>(form)) << body;
  auto* const parts = std::get_if<std::vector<FormPart>>(&form);
  return parts == nullptr ? std::vector<FormPart>() : *parts;
}

TEST(MultipartFormTest, ReadsFieldsAndFiles) {
  const auto parts =
      parts_of("multipart/form-data; charset=utf-8; boundary=\"x;yz\"",
               "--x;yz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
               "--x;yz\r\ncontent-disposition: form-data; filename=\"a \\\"b\\\";.jsonl\"; "
               "name=file\r\nContent-Type: application/json\r\n\r\n{}\r\n--x;y\r\n\r\n"
               "--x;yz--\r\n");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "purpose");
  EXPECT_EQ(parts[0].file_name, "");
  EXPECT_EQ(parts[0].content, "batch");
  EXPECT_EQ(parts[1].name, "file");
  EXPECT_EQ(parts[1].file_name, "a \"b\";.jsonl");
  EXPECT_EQ(parts[1].content, "{}\r\n--x;y\r\n") << "a line like the boundary is not one";
}

TEST(MultipartFormTest, AFormMayBeEmpty) { EXPECT_TRUE(parts_of(kType, "--xyz--").empty()); }

TEST(MultipartFormTest, NamesTheFaultOfAMalformedForm) {
  const std::string part = "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n";
  std::string many = "--xyz";
  for (size_t i = 0; i <= kMaxFormParts; ++i) many += part + "--xyz";
  const std::pair<std::string, std::string> kWrong[] = {
      {"multipart/form-data", "--xyz--"},
      {"multipart/form-data; boundary=", "--xyz--"},
      {"multipart/form-data; boundary=" + std::string(71, 'b'), "--" + std::string(71, 'b') + "--"},
      {std::string(kType), ""},
      {std::string(kType), "--xy"},
      {std::string(kType), "--xyz"},
      {std::string(kType), "--xyz\r\n"},
      {std::string(kType), "--xyz" + part},
      {std::string(kType), "--xyzq" + part + "--xyz--"},
      {std::string(kType), "--xyz\r\nContent-Disposition: form-data\r\n\r\nb\r\n--xyz--"},
      {std::string(kType), "--xyz\r\nno colon\r\n\r\nb\r\n--xyz--"},
      {std::string(kType), "--xyz\r\nA: " + std::string(kMaxFormPartHead, 'a') + part + "--xyz--"},
      {std::string(kType), many + "--"}};
  for (const auto& [type, body] : kWrong) {
    const auto form = parse_multipart_form(type, body);
    const auto* const error = std::get_if<ApiError>(&form);
    ASSERT_NE(error, nullptr) << type << " " << body.substr(0, 100);
    EXPECT_EQ(error->code, "invalid_form");
  }
}

TEST(MultipartFormTest, EveryCutOfAFormIsAnErrorOrAForm) {
  const std::string body =
      "--xyz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\\\"\r\n\r\nb\r\n--xyz--";
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_TRUE(std::holds_alternative<ApiError>(parse_multipart_form(kType, body.substr(0, size))))
        << size;
  }
}

}  // namespace
}  // namespace heddle::server
