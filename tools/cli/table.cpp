// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/table.h"

#include <algorithm>

namespace heddle::tools {

namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-e%x/ ") == std::string::npos;
}

void append_cell(std::string& line, const std::string& cell, size_t width, bool right) {
  const std::string padding(width - std::min(width, cell.size()), ' ');
  line += right ? padding + cell : cell + padding;
}

}  // namespace

std::string Table::to_string() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < widths.size() && i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<bool> right(widths.size(), true);
  for (size_t r = 1; r < rows_.size(); ++r) {
    for (size_t i = 0; i < widths.size() && i < rows_[r].size(); ++i) {
      if (!rows_[r][i].empty() && !is_number(rows_[r][i])) right[i] = false;
    }
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) line += "  ";
      append_cell(line, i < rows_[r].size() ? rows_[r][i] : "", widths[i], right[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r == 0) {
      size_t total = 0;
      for (const size_t width : widths) total += width + 2;
      text += std::string(total - 2, '-') + '\n';
    }
  }
  return text;
}

}  // namespace heddle::tools
