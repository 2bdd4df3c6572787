// SPDX-License-Identifier: Apache-2.0
#include "sse_reader.h"

namespace heddle::tools {

bool SseReader::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty() && !too_long_) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    too_long_ = line_.size() + data_.size() > kMaxEventBytes;
    if (end == std::string_view::npos || too_long_) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(on_data);
    line_.clear();
  }
  return !too_long_;
}

void SseReader::end_line(const std::function<void(std::string_view)>& on_data) {
  std::string_view line = line_;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace heddle::tools
