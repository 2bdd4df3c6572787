// SPDX-License-Identifier: Apache-2.0
// A server for calls of the Responses API, and the prompts that its engine got.
#pragma once

#include <string>
#include <vector>

#include "server/server_fixture.h"

namespace heddle::server {

class ResponsesFixture : public ServerTest {
 protected:
  // FakeCodec has a token for each byte.
  [[nodiscard]] std::string last_prompt() const {
    const std::vector<Request> requests = engine->submitted();
    std::string text;
    for (const TokenId token : requests.back().prompt) text += static_cast<char>(token);
    return text;
  }
};

}  // namespace heddle::server
