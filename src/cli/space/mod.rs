//! `svc space`: workspaces and their agents. [`settings`] are the flags that spaces and templates share; [`create`]
//! makes and changes a space; [`list_show`] lists and shows them; [`run`] starts and stops them.

/// Declares a client command that takes the settings of a space or a template beside its own arguments.
macro_rules! settings_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($arguments:tt)* }
    ) => {
        client_command! {
            $(#[$($attribute)*])*
            $name = $word {
                $($arguments)*

                /// what it is for
                #[argh(option)]
                description: Option<String>,

                /// a port, as NAME=PORT or NAME=PORT/PROTOCOL (http, https or tcp); repeat for more
                #[argh(option, from_str_fn($crate::cli::space::settings::port))]
                port: Vec<$crate::model::space_settings::Port>,

                /// a custom field, as NAME=VALUE; repeat for more
                #[argh(option, from_str_fn($crate::cli::space::settings::field))]
                custom: Vec<(String, String)>,

                /// the name or id of the stored script that its agent runs when it starts
                #[argh(option, arg_name = "script")]
                startup_script: Option<String>,

                /// check health by a GET of a URL, or of PORT or PORT/PATH where the agent is
                #[argh(option, arg_name = "url")]
                health_http: Option<String>,

                /// check health by a connection to this port where the agent is
                #[argh(option, arg_name = "port")]
                health_tcp: Option<u16>,

                /// check health by a command, split at spaces; 0 is healthy
                #[argh(option, arg_name = "command")]
                health_command: Option<String>,

                /// check health by the Lua in this file
                #[argh(option, arg_name = "file")]
                health_lua: Option<std::path::PathBuf>,

                /// how often health is checked (otherwise 10s)
                #[argh(option, arg_name = "span")]
                interval: Option<$crate::platform::config::Span>,

                /// how long a check may take (otherwise 5s)
                #[argh(option, arg_name = "span")]
                timeout: Option<$crate::platform::config::Span>,

                /// failed checks in a row that make it unhealthy (otherwise 3)
                #[argh(option, arg_name = "n")]
                failures: Option<u32>,
            }
        }

        impl $name {
            /// The settings that were given, as the API takes them.
            pub(in crate::cli) fn settings(
                &self,
            ) -> Result<serde_json::Map<String, serde_json::Value>, $crate::cli::failure::Failure> {
                let flags = $crate::cli::space::settings::Flags {
                    description: self.description.as_deref(),
                    ports: &self.port,
                    custom: &self.custom,
                    startup_script: self.startup_script.as_deref(),
                    http: self.health_http.as_deref(),
                    tcp: self.health_tcp,
                    command: self.health_command.as_deref(),
                    lua: self.health_lua.as_deref(),
                    interval: self.interval,
                    timeout: self.timeout,
                    failures: self.failures,
                };
                flags.fields()
            }
        }
    };
}
pub(super) use settings_command;

mod create;
mod list_show;
mod run;
pub mod settings;

pub use create::{Create, Update};
pub use list_show::{Delete, List, Show};
pub use run::{Start, Stop, Token};

command_family! {
    /// Manage spaces: workspaces that run an agent and publish methods.
    #[argh(
        example = "{command_name} create web --port web=8080 --health-http 8080/healthz\n\
                   {command_name} list\n\
                   {command_name} stop web"
    )]
    Space = "space" { List, Show, Create, Update, Start, Stop, Token, Delete }
}
