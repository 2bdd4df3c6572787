// SPDX-License-Identifier: Apache-2.0
// The dashboard: the pages below web/, which the build embeds. They need no key, as they show
// nothing by themselves: what they show they ask the server's API for, with the key that their user
// types.
//
// Threading: free functions without state.
#pragma once

#include <span>
#include <string_view>

#include "server/http/http_message.h"

namespace heddle::server {

struct DashboardFile {
  std::string_view name;  // "app.js"
  std::string_view content;
};

// Every file of web/, by name; made by cmake/embed_files.cmake.
[[nodiscard]] std::span<const DashboardFile> dashboard_files();

// Whether a request for "/" comes from a browser, which says that it takes HTML.
[[nodiscard]] bool wants_page(const HttpRequest& request);

// The file, with headers that allow the page nothing but its own scripts, styles and server. 404
// for a name that is not there.
[[nodiscard]] HttpResponse dashboard_page(std::string_view name, const HttpRequest& request);

}  // namespace heddle::server
