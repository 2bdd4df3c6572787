// SPDX-License-Identifier: Apache-2.0
// Table: formats rows of cells as aligned text, for the reports of the subcommands.
#pragma once

#include <string>
#include <vector>

namespace heddle::tools {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // The rows as text: columns are padded to their widest cell, numbers are right-aligned and words
  // left-aligned; a rule separates the header.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace heddle::tools
