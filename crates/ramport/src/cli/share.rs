//! Options of `ramport share`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use control::{OptionList, ShareKind, ShareOptions, Size};
use server::ShareClient;

use super::values::{parse_option_list, parse_share_client, parse_share_options};
use super::{NameArgs, RemoveArgs, examples};

#[derive(Debug, Subcommand)]
pub(crate) enum ShareVerb {
    /// Create a share
    #[command(after_help = examples::SHARE_CREATE)]
    Create(ShareCreateArgs),
    /// List shares with files, used memory and clients
    #[command(visible_alias = "ls", after_help = examples::SHARE_LIST)]
    List,
    /// Show a share
    #[command(after_help = examples::SHARE_SHOW)]
    Show(NameArgs),
    /// Change quota, clients or options while clients use the share
    #[command(visible_alias = "change", after_help = examples::SHARE_SET)]
    Set(ShareSetArgs),
    /// Remove every file of a share in memory; clients that have it mounted must mount it again
    #[command(after_help = examples::SHARE_ERASE)]
    Erase(RemoveArgs),
    /// Remove a share, and its files if they are in memory
    #[command(visible_alias = "rm", after_help = examples::SHARE_REMOVE)]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShareCreateArgs {
    /// Its name: letters, digits, '.', '_' and '-'. Clients mount /NAME
    pub(crate) name: String,
    /// What holds its files
    #[arg(long, value_name = "KIND", default_value = "ramfs")]
    pub(crate) kind: ShareKindWord,
    /// For kind dir: the absolute path of the directory, which exists
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    /// For kind ramfs: memory that its files may take [default: what the memory budget has]
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<Size>,
    /// For kind ramfs: how many files, directories and links it may hold [default: 1048576]
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<NonZeroU64>,
    /// Clients that may use it: 192.0.2.7, 192.0.2.0/24, db1.example.com; repeat for more [default:
    /// any, but only through portals on loopback]
    #[arg(long, value_name = "CLIENT", value_parser = parse_share_client)]
    pub(crate) client: Vec<ShareClient>,
    /// Options in the words of exports(5), separated by commas: rw or ro, sync or async, secure or
    /// insecure, root_squash, no_root_squash or all_squash, anonuid=N, anongid=N [default:
    /// rw,sync,secure,root_squash,anonuid=65534,anongid=65534]
    #[arg(long, short, value_name = "LIST", value_parser = parse_share_options)]
    pub(crate) options: Option<ShareOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareKindWord {
    /// Memory of the daemon; files are lost when it ends
    Ramfs,
    /// A directory of the daemon's machine
    Dir,
}

impl From<ShareKindWord> for ShareKind {
    fn from(word: ShareKindWord) -> Self {
        match word {
            ShareKindWord::Ramfs => Self::Ramfs,
            ShareKindWord::Dir => Self::Dir,
        }
    }
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("changes").required(true).multiple(true))]
pub(crate) struct ShareSetArgs {
    /// Its name
    pub(crate) name: String,
    /// Memory that its files may take
    #[arg(long, value_name = "SIZE", group = "changes")]
    pub(crate) quota: Option<Size>,
    /// Let its files take what the memory budget has
    #[arg(long, conflicts_with = "quota", group = "changes")]
    pub(crate) no_quota: bool,
    /// How many files, directories and links it may hold
    #[arg(long, value_name = "N", group = "changes")]
    pub(crate) files: Option<NonZeroU64>,
    /// Clients that may use it, instead of those before; repeat for more
    #[arg(long, value_name = "CLIENT", value_parser = parse_share_client, group = "changes")]
    pub(crate) client: Vec<ShareClient>,
    /// Allow any address, but only through portals on loopback
    #[arg(long, conflicts_with = "client", group = "changes")]
    pub(crate) no_clients: bool,
    /// Options in the words of exports(5), separated by commas; others stay as they are
    #[arg(long, short, value_name = "LIST", value_parser = parse_option_list, group = "changes")]
    pub(crate) options: Option<OptionList>,
}
