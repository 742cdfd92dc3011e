//! Declarations of commands: the arguments that groups of commands share, written once.

/// Declares a command that talks to a server: its own arguments, and the three that all of these share.
macro_rules! client_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($arguments:tt)* }
    ) => {
        #[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            $($arguments)*

            /// print JSON instead of a table
            #[argh(switch)]
            json: bool,

            /// the server, such as http://127.0.0.1:7300 (otherwise SVC_SERVER, or the one that `svc login` saved)
            #[argh(option, arg_name = "url")]
            server: Option<String>,

            /// the API token (otherwise SVC_TOKEN, or the one that `svc login` saved)
            #[argh(option)]
            token: Option<String>,
        }

        impl $name {
            /// A client for the server that the flags, the environment and the files name.
            fn client(
                &self,
                shell: &$crate::cli::shell::Shell<'_>,
            ) -> Result<$crate::cli::client::Client, $crate::cli::failure::Failure> {
                let flags = $crate::cli::access::AccessFlags { server: self.server.clone(), token: self.token.clone() };
                $crate::cli::client::Client::find(&flags, shell.environment)
            }

            fn format(&self) -> $crate::cli::shell::OutputFormat {
                $crate::cli::shell::OutputFormat::of_switch(self.json)
            }
        }
    };
}

/// Declares a command that needs no server: it talks to the agent, or works on files. Its own arguments, and `--json`.
macro_rules! local_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($arguments:tt)* }
    ) => {
        #[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            $($arguments)*

            /// print JSON instead of a table
            #[argh(switch)]
            json: bool,
        }

        impl $name {
            fn format(&self) -> $crate::cli::shell::OutputFormat {
                $crate::cli::shell::OutputFormat::of_switch(self.json)
            }
        }
    };
}

/// Declares a command with subcommands.
macro_rules! command_family {
    (
        $(#[$($attribute:tt)*])*
        $name:ident($subcommand:ident) = $word:tt { $($variant:ident),* $(,)? }
    ) => {
        #[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            #[argh(subcommand)]
            pub command: $subcommand,
        }

        #[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
        #[argh(subcommand)]
        #[allow(clippy::large_enum_variant, reason = "there is one in a process")]
        pub enum $subcommand {
            $($variant($variant),)*
        }

        impl $name {
            pub fn run(self, shell: &mut $crate::cli::shell::Shell<'_>) -> Result<(), $crate::cli::failure::Failure> {
                match self.command {
                    $($subcommand::$variant(command) => command.run(shell),)*
                }
            }
        }
    };
}

/// Declares `list` of a kind of record that has no filters.
macro_rules! list_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident of $view:ident
    ) => {
        client_command! {
            $(#[$($attribute)*])*
            $name = "list" {}
        }

        impl $name {
            pub fn run(self, shell: &mut $crate::cli::shell::Shell<'_>) -> Result<(), $crate::cli::failure::Failure> {
                let client = self.client(shell)?;
                $crate::cli::resource::list::<$view>(shell, &client, &Default::default(), self.format())
            }
        }
    };
}

/// Declares `show` and `delete` of a kind of record; both take its name or id.
macro_rules! show_and_delete_commands {
    (
        $(#[$($show_attribute:tt)*])*
        $show:ident,
        $(#[$($delete_attribute:tt)*])*
        $delete:ident
        of $view:ident by
        $(#[$($argument_attribute:tt)*])*
        $argument:ident
    ) => {
        client_command! {
            $(#[$($show_attribute)*])*
            $show = "show" {
                $(#[$($argument_attribute)*])*
                #[argh(positional)]
                $argument: String,
            }
        }

        client_command! {
            $(#[$($delete_attribute)*])*
            $delete = "delete" {
                $(#[$($argument_attribute)*])*
                #[argh(positional)]
                $argument: String,
            }
        }

        impl $show {
            pub fn run(self, shell: &mut $crate::cli::shell::Shell<'_>) -> Result<(), $crate::cli::failure::Failure> {
                let client = self.client(shell)?;
                $crate::cli::resource::show::<$view>(shell, &client, &self.$argument, self.format())
            }
        }

        impl $delete {
            pub fn run(self, shell: &mut $crate::cli::shell::Shell<'_>) -> Result<(), $crate::cli::failure::Failure> {
                let client = self.client(shell)?;
                let kind = <$view as $crate::cli::resource::Resource>::KIND;
                kind.delete(shell, &client, &self.$argument, self.format())
            }
        }
    };
}

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
                #[argh(option, from_str_fn($crate::cli::space::settings::parse_port))]
                port: Vec<$crate::model::space_settings::Port>,

                /// a custom field, as NAME=VALUE; repeat for more
                #[argh(option, from_str_fn($crate::cli::space::settings::parse_custom_field))]
                custom: Vec<(String, String)>,

                /// the name or id of the stored script that its agent runs when it starts
                #[argh(option, arg_name = "script")]
                startup_script: Option<String>,

                /// check health by a GET of a URL, or of PORT or PORT/PATH where the agent is
                #[argh(option, arg_name = "url")]
                health_http: Option<String>,

                /// check health by a connection to this port where the agent is
                #[argh(option, arg_name = "port", from_str_fn($crate::cli::space::settings::parse_port_number))]
                health_tcp: Option<std::num::NonZeroU16>,

                /// check health by a command, split at spaces; 0 is healthy
                #[argh(option, arg_name = "command")]
                health_command: Option<String>,

                /// check health by the Lua in this file
                #[argh(option, arg_name = "file")]
                health_lua: Option<std::path::PathBuf>,

                /// the time between health checks (otherwise 10s)
                #[argh(option, arg_name = "span")]
                interval: Option<$crate::platform::config::Span>,

                /// the longest a check may take (otherwise 5s)
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
                let flags = $crate::cli::space::settings::SettingsFlags {
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
