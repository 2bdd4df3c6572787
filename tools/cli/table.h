// SPDX-License-Identifier: Apache-2.0
// Table: rows of cells as aligned text, for the reports the subcommands print.
#pragma once

#include <string>
#include <vector>

namespace heddle::tools {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // Columns padded to their widest cell; numbers to the right, words to the left; a rule below the
  // header.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace heddle::tools
