// SPDX-License-Identifier: Apache-2.0
// What a file is that was meant to be another: an archive, weights in another format, the page of a
// server. Readers ask before they complain about the first byte that they cannot read.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// So much of a file's beginning is enough for describe_file_kind().
inline constexpr size_t kFileKindBytes = 1024;

// Says in words what kind of file begins with `start`, with the remedy: GGUF, zip, pickle, gzip and
// other archives, HDF5, zeros, a Git LFS pointer, an HTML page. Empty for any other.
[[nodiscard]] std::string describe_file_kind(std::string_view start);

// The same of Git LFS pointers alone.
[[nodiscard]] std::string describe_lfs_pointer(std::string_view text);

}  // namespace heddle
