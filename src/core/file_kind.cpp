// SPDX-License-Identifier: Apache-2.0
#include "core/file_kind.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

using namespace std::string_view_literals;

namespace {

struct Beginning {
  std::string_view bytes;
  std::string_view what;
};

constexpr std::string_view kArchive =
    "the file is compressed or an archive; unpack it, or download the file itself";
constexpr std::string_view kPickle =
    "the file is a pickle of Python, as PyTorch writes; download the model's safetensors files";

constexpr Beginning kBeginnings[] = {
    {"GGUF"sv, "the file is a GGUF file, which is read where its name ends in .gguf; rename it"},
    {"PK\x03\x04"sv,
     "the file is a PyTorch file or another zip archive; download the model's safetensors files"},
    {"\x80\x02"sv, kPickle},
    {"\x80\x03"sv, kPickle},
    {"\x80\x04"sv, kPickle},
    {"\x80\x05"sv, kPickle},
    {"\x89HDF\r\n"sv,
     "the file is an HDF5 file, as TensorFlow writes; download the model's safetensors files"},
    {"\x1F\x8B"sv, kArchive},          // gzip
    {"\x28\xB5\x2F\xFD"sv, kArchive},  // zstd
    {"\xFD"
     "7zXZ"sv,
     kArchive},
    {"BZh"sv, kArchive},
    {"7z\xBC\xAF"sv, kArchive},
};

bool is_tar(std::string_view start) {
  constexpr size_t kMagicBegin = 257;
  return start.size() > kMagicBegin && start.substr(kMagicBegin).starts_with("ustar");
}

}  // namespace

std::string describe_file_kind(std::string_view start) {
  start = start.substr(0, kFileKindBytes);
  for (const auto& [bytes, what] : kBeginnings) {
    if (start.starts_with(bytes)) return std::string(what);
  }
  if (is_tar(start)) return std::string(kArchive);
  constexpr size_t kFewestZeros = 8;
  if (start.size() >= kFewestZeros && start.find_first_not_of('\0') == std::string_view::npos) {
    return "the file begins with zeros only: its room was reserved, but it was not fully "
           "downloaded; download it again";
  }
  const size_t first = start.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && start[first] == '<') {
    return "the file is an HTML or XML page; download it again";
  }
  return describe_lfs_pointer(start);
}

std::string describe_lfs_pointer(std::string_view text) {
  constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/";
  if (!text.starts_with(kFirstLine)) return {};
  constexpr std::string_view kSize = "\nsize ";
  std::string_view size;
  if (const size_t at = text.find(kSize); at != std::string_view::npos) {
    size = text.substr(at + kSize.size());
    size = size.substr(0, size.find_first_not_of("0123456789"));
  }
  return fmt::format(
      "the file is a Git LFS pointer{}, not the file itself; run `git lfs pull` in the folder, or "
      "download the file",
      size.empty() ? std::string() : fmt::format(" to {} bytes", size));
}

}  // namespace heddle
